// What host code tells the emulator (`opsmith.emulate`) that it is compiled for; for a GPU, nothing.
#pragma once

#ifdef OPSMITH_EMULATOR
#include <opsmith_host_tensors.h>
#else

#include <torch/csrc/stable/tensor.h>

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

inline constexpr bool kEmulated = false;

struct HostCall {};

inline void remember(const torch::stable::Tensor&, bool) {}

}  // namespace detail

}  // namespace opsmith

#endif
