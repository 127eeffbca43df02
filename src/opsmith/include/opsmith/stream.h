// The second step of host code: the tensors' own GPU, and torch's current stream of it. Needs no header of CUDA.
#pragma once

#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "tensors.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

// Weak, because it is in torch's CUDA library: an extension with CPU and CUDA kernels then loads into a CPU-only torch too.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace opsmith __attribute__((visibility("hidden"))) {

// Whether this code is compiled for `opsmith.emulate`: its tensors are on the CPU, and each call is one of its own.
inline constexpr bool is_emulated = detail::kEmulated;

// A stream of one GPU; passes for a cudaStream_t.
struct Stream {
  int32_t device;
  CUstream_st* handle;
  operator CUstream_st*() const { return handle; }
};

// The stream that torch's work on the tensor's GPU goes to at present.
inline Stream current_stream(const Tensor& tensor) {
  if (!tensor.is_cuda()) fail("the current CUDA stream was asked for, of a tensor that is on no CUDA device");
  if (detail::kEmulated) return {0, nullptr};
  if (aoti_torch_get_current_cuda_stream == nullptr) fail("this torch is built without CUDA");
  const int32_t device = tensor.get_device_index();
  void* handle = nullptr;
  check(aoti_torch_get_current_cuda_stream(device, &handle), "aoti_torch_get_current_cuda_stream");
  return {device, static_cast<CUstream_st*>(handle)};
}

// Makes the tensor's GPU the current one, as long as this object lives. For a CPU tensor it does nothing. A kernel that
// opsmith calls, and opsmith::launch, have it so already; functions registered by STABLE_TORCH_LIBRARY need it.
class DeviceGuard {
 public:
  explicit DeviceGuard(const Tensor& tensor) {
    if (tensor.is_cuda() && !detail::kEmulated) guard_.emplace(tensor.get_device_index());
  }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

}  // namespace opsmith
