// Launches of kernels of an opsmith.cuda_source, by name; host code for them needs neither nvcc nor CUDA's headers.
//
//   opsmith::launch("scale<float, 4>", {blocks, threads, shared_bytes}, x,
//                   opsmith::data<const float>(x), opsmith::data<float>(out), x.numel());
//
// The kernels are those of opsmith.extension(..., kernels=cu). A name is looked up once on each GPU, through Host.
#pragma once

#include <string>
#include <string_view>

#include "arguments.h"
#include "decline.h"
#include "geometry.h"
#include "host.h"
#include "stream.h"

#ifdef OPSMITH_EMULATOR
#include <opsmith_named_launch.h>
#else
#include "driver_launch.h"
#endif

// Called by what has loaded this library. Former kernels are forgotten.
extern "C" __attribute__((visibility("default"), used)) inline void opsmith_set_host(const opsmith::Host* host) {
  opsmith::detail::set_host(host);
}

namespace opsmith __attribute__((visibility("hidden"))) {

template <typename... Arguments>
void launch(std::string_view kernel, const Geometry& geometry, const Stream& stream, const Arguments&... arguments) {
  const detail::Argument given[] = {detail::argument(arguments)..., detail::Argument()};
  uint64_t slots[sizeof...(Arguments) + 1];
  void* pointers[sizeof...(Arguments) + 1];
  detail::launch_named(kernel, geometry, stream, given, sizeof...(Arguments), slots, pointers);
}

template <typename... Arguments>
void launch(std::string_view kernel, const Geometry& geometry, const Tensor& tensor, const Arguments&... arguments) {
  launch(kernel, geometry, current_stream(tensor), arguments...);
}

// The GPU that holds a tensor, in the numbers that launches are planned with: opsmith.gpu_of of C++. A kernel that
// plans by these numbers can be built ahead of time for other GPUs, and runs in the emulator.
inline GpuInfo gpu_of(const Tensor& tensor) {
  if (!tensor.is_cuda()) fail("gpu_of was asked for a tensor that is on no CUDA device");
  return detail::gpu_of(tensor);
}

// Whether work on a stream becomes part of a CUDA graph, which may be replayed on any stream.
inline bool is_capturing(const Stream& stream) { return detail::is_capturing(stream); }

}  // namespace opsmith
