// The launches of host code for the emulator: what opsmith/cuda_launch.h is for a GPU.
#pragma once

#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "opsmith_launched_tensors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

// A kernel by the addresses of its arguments, the first of which is its own.
template <typename... Parameters, size_t... Positions>
__attribute__((no_sanitize("thread", "undefined"))) void enter_with(
    void** arguments, std::index_sequence<Positions...>) {
  const auto kernel = *static_cast<void (**)(Parameters...)>(arguments[0]);
  kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[Positions + 1])...);
}

template <typename... Parameters>
__attribute__((no_sanitize("thread", "undefined"))) void enter(void** arguments) {
  enter_with<Parameters...>(arguments, std::index_sequence_for<Parameters...>());
}

template <typename Parameter>
constexpr emulator::ParameterKind kind_of() {
  using emulator::ParameterKind;
  using Pointee = std::remove_cv_t<std::remove_pointer_t<Parameter>>;
  if constexpr (std::is_pointer_v<Parameter>) {
    if constexpr (std::is_function_v<Pointee>) return ParameterKind::value;
    return std::is_pointer_v<Pointee> ? ParameterKind::pointer_to_pointers : ParameterKind::pointer;
  } else if constexpr (std::is_class_v<Parameter> || std::is_union_v<Parameter> || std::is_integral_v<Parameter>) {
    return alignof(Parameter) >= alignof(void*) ? ParameterKind::record : ParameterKind::value;
  } else {
    return ParameterKind::value;
  }
}

// `values` is the tuple of arguments, `pointers` the addresses of its parts.
template <typename... Parameters, typename Values>
void start(
    void (*kernel)(Parameters...), const Geometry& geometry, const Stream&, Values& values, void* const* pointers) {
  LaunchedTensors tensors;
  const std::vector<emulator::HostParameter> parameters = [&]<size_t... Positions>(std::index_sequence<Positions...>) {
    return std::vector<emulator::HostParameter>{
        {reinterpret_cast<uintptr_t>(pointers[Positions]), sizeof(Parameters), kind_of<std::remove_cv_t<Parameters>>(),
         typeid(Parameters).name()}...};
  }(std::index_sequence_for<Parameters...>());
  std::vector<void*> arguments{&kernel};
  arguments.insert(arguments.end(), pointers, pointers + sizeof...(Parameters));
  emulator::HostLaunch launch{};
  launch.kernel = reinterpret_cast<const void*>(kernel);
  launch.entry = &enter<Parameters...>;
  launch.arguments = arguments.data();
  launch.arguments_begin = reinterpret_cast<uintptr_t>(&values);
  launch.arguments_end = launch.arguments_begin + sizeof(values);
  launch.parameters = parameters.data();
  launch.parameter_count = parameters.size();
  tensors.give(launch);
  start(launch, geometry);
}

}  // namespace detail

}  // namespace opsmith
