// The launches of host code for the emulator: what opsmith/cuda_launch.h is for a GPU.
#pragma once

#include <exception>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "../native/host.h"
#include "cuda_runtime_api.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

// Takes host code back to where it was called from. Python, which has the reason, raises it there.
class StoppedLaunch : public std::exception {
 public:
  const char* what() const noexcept override { return "an emulated launch was stopped"; }
};

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

inline emulator::HostTensor described(const Tensor& tensor, bool by_data, const std::string& description) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const auto size = static_cast<int64_t>(tensor.element_size());
  int64_t elements = tensor.numel() == 0 ? 0 : 1;
  for (int64_t i = 0; elements > 0 && i < tensor.dim(); ++i) elements += (tensor.size(i) - 1) * tensor.stride(i);
  return {begin, begin + elements * size, begin - tensor.storage_offset() * size, description.c_str(), by_data};
}

// `values` is the tuple of arguments, `pointers` the addresses of its parts.
template <typename... Parameters, typename Values>
void start(
    void (*kernel)(Parameters...), const Geometry& geometry, const Stream&, Values& values, void* const* pointers) {
  const HostCall* const call = HostCall::current();
  if (call == nullptr) fail("the emulator runs launches of the thread that called host code, not of one that it started");
  std::vector<std::string> descriptions;
  for (const UsedTensor& each : call->used()) {
    descriptions.push_back(dtype_name(each.tensor.scalar_type()) + " " + listed(each.tensor.sizes()));
  }
  std::vector<emulator::HostTensor> tensors;
  for (size_t i = 0; i < descriptions.size(); ++i) {
    tensors.push_back(described(call->used()[i].tensor, call->used()[i].by_data, descriptions[i]));
  }
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
  launch.tensors = tensors.data();
  launch.tensor_count = tensors.size();
  launch.grid = {geometry.grid.x, geometry.grid.y, geometry.grid.z};
  launch.block = {geometry.block.x, geometry.block.y, geometry.block.z};
  launch.shared_bytes = static_cast<uint64_t>(geometry.shared_bytes);
  switch (emulator::opsmith_host_launch(&launch)) {
    case emulator::LaunchResult::done: return;
    case emulator::LaunchResult::stopped: throw StoppedLaunch();
    case emulator::LaunchResult::refused: fail(launch.refusal);
  }
}

}  // namespace detail

}  // namespace opsmith
