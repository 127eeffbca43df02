// Launches by name of host code for the emulator: what opsmith/driver_launch.h is for a GPU.
#pragma once

#include <vector>

#include <opsmith/arguments.h>
#include <opsmith/decline.h>
#include <opsmith/geometry.h>
#include <opsmith/stream.h>

#include "opsmith_launched_tensors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

inline const Host*& host_place() {
  static const Host* place = nullptr;
  return place;
}
inline const Host* host() { return host_place(); }
inline void set_host(const Host* host) { host_place() = host; }

inline emulator::ParameterKind kind_of(const ParameterInfo& parameter) {
  using emulator::ParameterKind;
  if (parameter.kind == ValueKind::pointer) {
    return parameter.element == ValueKind::pointer ? ParameterKind::pointer_to_pointers : ParameterKind::pointer;
  }
  return parameter.kind == ValueKind::other ? ParameterKind::record : ParameterKind::value;
}

inline void launch_named(
    std::string_view name, const Geometry& geometry, const Stream&, const Argument* given, size_t count,
    uint64_t* slots, void** pointers) {
  const std::string kernel(name);
  if (host() == nullptr || host()->find == nullptr) {
    fail(kernel, " is launched by its name, and the extension has no kernels: opsmith.extension(..., kernels=cu)");
  }
  const KernelInfo* info = nullptr;
  std::vector<char> message(8192);
  switch (host()->find(host()->context, kernel.c_str(), 0, &info, message.data(), message.size())) {
    case Found::found: break;
    case Found::nothing: return;
    case Found::declined: decline();
    case Found::failed: throw StoppedLaunch();
  }
  Conversion(name, *info).convert(given, count, slots, pointers);
  std::vector<std::vector<char>> structs;  // copies: a checked launch changes the addresses in them
  std::vector<emulator::HostParameter> parameters;
  for (size_t i = 0; i < count; ++i) {
    const ParameterInfo& each = info->parameters[i];
    if (each.kind == ValueKind::other) {
      const char* from = static_cast<const char*>(pointers[i]);
      pointers[i] = structs.emplace_back(from, from + each.size).data();
    }
    parameters.push_back({reinterpret_cast<uintptr_t>(pointers[i]), each.size, kind_of(each), each.type});
  }
  LaunchedTensors tensors;
  emulator::HostLaunch launch{};
  launch.name = kernel.c_str();
  launch.arguments = pointers;
  launch.parameters = parameters.data();
  launch.parameter_count = parameters.size();
  tensors.give(launch);
  start(launch, geometry);
}

inline GpuInfo gpu_of(const Tensor&) {
  GpuInfo found{};
  host()->gpu(host()->context, &found);
  return found;
}

inline bool is_capturing(const Stream&) { return false; }

}  // namespace detail

}  // namespace opsmith
