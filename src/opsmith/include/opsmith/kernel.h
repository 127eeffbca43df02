// For authors of C++ kernels: torch's stable ABI, and the one line that makes a function a kernel.
//
//   #include <opsmith/kernel.h>
//   using torch::stable::Tensor;
//
//   Tensor square(Tensor x) { ... }
//   OPSMITH_EXPORT(square_forward, square)
//
// A library of such functions loads into every torch from 2.11 on, whatever torch it was compiled against.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <exception>
#include <string>
#include <vector>

namespace opsmith {

// Throws where a call of torch's C shim has failed. (torch 2.11 and 2.13 each have a macro for this, under two names.)
inline void check(AOTITorchError code, const char* what) {
  STD_TORCH_CHECK(code == AOTI_TORCH_SUCCESS, what, " failed; torch's words are on stderr");
}

// A fresh contiguous tensor of the given sizes, with the dtype and device of `like`. torch::stable::empty_like finds its
// operator by name on every call, which on a small tensor costs more than the kernel.
inline torch::stable::Tensor empty(const torch::stable::Tensor& like, const int64_t* sizes, int64_t dimensions) {
  std::vector<int64_t> strides(dimensions);
  int64_t stride = 1;
  for (int64_t dimension = dimensions - 1; dimension >= 0; --dimension) {
    strides[dimension] = stride;
    stride *= sizes[dimension] > 1 ? sizes[dimension] : 1;
  }
  int32_t dtype = 0;
  int32_t device_type = 0;
  int32_t device_index = 0;
  check(aoti_torch_get_dtype(like.get(), &dtype), "aoti_torch_get_dtype");
  check(aoti_torch_get_device_type(like.get(), &device_type), "aoti_torch_get_device_type");
  check(aoti_torch_get_device_index(like.get(), &device_index), "aoti_torch_get_device_index");
  AtenTensorHandle handle = nullptr;
  check(
      aoti_torch_empty_strided(dimensions, sizes, strides.data(), dtype, device_type, device_index, &handle),
      "aoti_torch_empty_strided");
  return torch::stable::Tensor(handle);
}

inline torch::stable::Tensor empty_like(const torch::stable::Tensor& like) {
  return empty(like, like.sizes().data(), like.dim());
}

// Runs a boxed kernel. What it throws ends here and is raised by torch, inside torch's own library: a C++ exception that
// crosses from one copy of the C++ runtime into another (a compiler that links its own statically) kills the process.
template <typename Boxed>
void guarded(const char* name, Boxed&& boxed) {
  std::string words;
  try {
    boxed();
    return;
  } catch (const std::exception& error) {
    words = error.what();
  } catch (...) {
    words = "an exception that is no std::exception";
  }
  aoti_torch_check(false, name, __FILE__, __LINE__, words.c_str());
}

}  // namespace opsmith

// Exports `function` under `name` in the boxed form that opsmith hands to torch's dispatcher. Arguments and results are
// converted by torch::stable; a wrong number of them is reported at the first call.
#define OPSMITH_EXPORT(name, function)                                                                         \
  extern "C" __attribute__((visibility("default"))) void name(                                                 \
      StableIValue* stack, uint64_t inputs, uint64_t outputs) {                                                \
    opsmith::guarded(#name, [&] { TORCH_BOX(&function)(stack, inputs, outputs); });                            \
  }
