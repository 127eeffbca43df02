// The fourth step of host code: a checked launch. Every call of the CUDA runtime that kernel.h makes is in this file.
//
//   opsmith::launch(square_kernel<scalar>, {blocks, threads, shared_bytes}, x,
//                   opsmith::data<const scalar>(x), opsmith::data<scalar>(out), x.numel());
//
// On torch's current stream of the GPU that `x` is on; a Stream in its place says another one. Arguments are converted
// to what the kernel declares, and a number that does not fit is refused.
#pragma once

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <array>
#include <cstdlib>
#include <tuple>
#include <utility>

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
      limits = "; it takes at most " + std::to_string(attributes.maxThreadsPerBlock) + " threads a block (" +
               std::to_string(attributes.numRegs) + " registers each) and " +
               std::to_string(shared - static_cast<int64_t>(attributes.sharedSizeBytes)) +
               " bytes of dynamic shared memory, and a grid (2147483647, 65535, 65535) of blocks (1024, 1024, 64)";
    }
  }
  const std::string name = kernel_name(kernel);
  cudaGetLastError();  // it is told here, and must not be told again of the next launch
  fail(name, " was not launched with grid ", geometry.grid.text(), ", block ", geometry.block.text(), " and ",
       geometry.shared_bytes, " bytes of dynamic shared memory on cuda:", device, ": ", cudaGetErrorString(code), " (",
       cudaGetErrorName(code), ")", limits);
}

// An argument as the kernel declares it. A count of 2^31 must not become a negative int on the way.
template <typename Parameter, typename Argument>
Parameter converted(const Argument& argument, int position) {
  static_assert(!(std::is_integral_v<Parameter> && std::is_floating_point_v<Argument>),
                "the kernel takes an integer here, and was given a floating-point number: convert it");
  if constexpr (std::is_integral_v<Parameter> && std::is_integral_v<Argument>) {
    using Wide = std::conditional_t<std::is_signed_v<Argument>, int64_t, uint64_t>;
    const auto wide = static_cast<Wide>(argument);
    const auto least = static_cast<int64_t>(std::numeric_limits<Parameter>::min());
    const auto most = static_cast<uint64_t>(std::numeric_limits<Parameter>::max());
    if (std::cmp_less(wide, least) || std::cmp_greater(wide, most)) {
      fail("argument ", position, " of the kernel is ", wide, ", and its parameter takes ", least, " to ", most);
    }
    return static_cast<Parameter>(argument);
  } else {
    return argument;
  }
}

template <typename... Parameters, typename... Arguments, size_t... Positions>
void launch(
    void (*kernel)(Parameters...), const Geometry& geometry, const Stream& stream, std::index_sequence<Positions...>,
    const Arguments&... arguments) {
  const CurrentDevice on_its_device(stream.device);
  std::tuple<std::remove_cv_t<Parameters>...> values{
      converted<std::remove_cv_t<Parameters>>(arguments, static_cast<int>(Positions))...};
  std::array<void*, sizeof...(Parameters) + 1> pointers{&std::get<Positions>(values)..., nullptr};
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaError_t code = cudaSuccess;
  if (geometry.shared_bytes > kSharedWithoutAsking) {
    code = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(geometry.shared_bytes));
  }
  if (code == cudaSuccess) {
    code = cudaLaunchKernel(
        function, dim3(geometry.grid.x, geometry.grid.y, geometry.grid.z),
        dim3(geometry.block.x, geometry.block.y, geometry.block.z), pointers.data(),
        static_cast<size_t>(geometry.shared_bytes), stream.handle);
  }
  if (code != cudaSuccess) launch_failed(code, function, geometry, stream.device);
}

}  // namespace detail

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), Geometry geometry, const Stream& stream, const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "a kernel is launched with one argument a parameter");
  detail::launch(kernel, geometry, stream, std::index_sequence_for<Parameters...>(), arguments...);
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), Geometry geometry, const Tensor& tensor, const Arguments&... arguments) {
  launch(kernel, geometry, current_stream(tensor), arguments...);
}

}  // namespace opsmith
