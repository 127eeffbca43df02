// Included before host code in tests: CPU tensors take themselves for those of the GPU `fake_index`, so that host code
// goes the way of a GPU, to a fake driver (fake_cuda.cpp).
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

inline int32_t fake_index = 0;

#define is_cuda() is_cpu()
#define get_device_index() dim() * 0 + fake_index
#define OPSMITH_TEST_INDEX                                                                     \
  int64_t use_index(int64_t index) { return fake_index = static_cast<int32_t>(index); } \
  OPSMITH_EXPORT(index, use_index)
