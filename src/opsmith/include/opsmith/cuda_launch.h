// A launch by the CUDA runtime. Every call of it that kernel.h makes is in this file.
#pragma once

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <cstdlib>

#include "geometry.h"
#include "stream.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

constexpr int64_t kSharedWithoutAsking = 48 * 1024;

inline void cuda_check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) fail(what, " failed: ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

// The GPU that a launch is meant for, made current; the one before comes back afterwards.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    cuda_check(cudaGetDevice(&before_), "cudaGetDevice");
    changed_ = before_ != device;
    if (changed_) cuda_check(cudaSetDevice(device), "cudaSetDevice");
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

inline int device_limit(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

inline std::string kernel_name(const void* kernel) {
#if CUDART_VERSION >= 12030
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) == cudaSuccess && mangled != nullptr) {
    int status = 0;
    char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    const std::string name = status == 0 ? readable : mangled;
    std::free(readable);
    return name;
  }
#endif
  return "the kernel";
}

// What was asked for, what the CUDA runtime said, and the limits that it may have broken.
[[noreturn]] inline void launch_failed(cudaError_t code, const void* kernel, const Geometry& geometry, int device) {
  std::string limits;
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
#ifdef __CUDA_ARCH_LIST__
    // As a text: __CUDA_ARCH_LIST__ is a list with commas, 800,900.
    constexpr int compiled[] = {__CUDA_ARCH_LIST__};
    limits = "; it is compiled for";
    for (const int arch : compiled) limits += " sm_" + std::to_string(arch / 10);
    limits += ", and this GPU is sm_" + std::to_string(device_limit(cudaDevAttrComputeCapabilityMajor, device)) +
              std::to_string(device_limit(cudaDevAttrComputeCapabilityMinor, device)) +
              ": name it in arch= or GPU_TARGETS";
#endif
  } else {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) {
      const int shared = device_limit(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
      limits = "; it takes at most " + std::to_string(attributes.maxThreadsPerBlock) + " threads per block (" +
               std::to_string(attributes.numRegs) + " registers each) and " +
               std::to_string(shared - static_cast<int64_t>(attributes.sharedSizeBytes)) +
               " bytes of dynamic shared memory, and a grid (2147483647, 65535, 65535) of blocks (1024, 1024, 64)";
    }
  }
  const std::string name = kernel_name(kernel);
  cudaGetLastError();  // clears the error, which must not be reported again by the next launch
  fail(name, " was not launched with grid ", geometry.grid.text(), ", block ", geometry.block.text(), " and ",
       geometry.shared_bytes, " bytes of dynamic shared memory on cuda:", device, ": ", cudaGetErrorString(code), " (",
       cudaGetErrorName(code), ")", limits);
}

// `values` is the tuple of arguments, `pointers` the addresses of its parts.
template <typename... Parameters, typename Values>
void start(
    void (*kernel)(Parameters...), const Geometry& geometry, const Stream& stream, Values&, void** pointers) {
  const CurrentDevice on_its_device(stream.device);
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaError_t code = cudaSuccess;
  if (geometry.shared_bytes > kSharedWithoutAsking) {
    code = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(geometry.shared_bytes));
  }
  if (code == cudaSuccess) {
    code = cudaLaunchKernel(
        function, dim3(geometry.grid.x, geometry.grid.y, geometry.grid.z),
        dim3(geometry.block.x, geometry.block.y, geometry.block.z), pointers,
        static_cast<size_t>(geometry.shared_bytes), stream.handle);
  }
  if (code != cudaSuccess) launch_failed(code, function, geometry, stream.device);
}

}  // namespace detail

}  // namespace opsmith
