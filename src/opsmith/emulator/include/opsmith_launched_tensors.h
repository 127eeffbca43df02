// What every launch of host code for the emulator has in common: the tensors that it may use, and how it ends.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include <opsmith/geometry.h>
#include <opsmith/tensors.h>

#include "../native/host.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

// Takes host code back to where it was called from. Python, which has the reason, raises it there.
class StoppedLaunch : public std::exception {
 public:
  const char* what() const noexcept override { return "an emulated launch was stopped"; }
};

inline emulator::HostTensor described(const Tensor& tensor, bool by_data, const std::string& description) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const auto size = static_cast<int64_t>(tensor.element_size());
  int64_t elements = tensor.numel() == 0 ? 0 : 1;
  for (int64_t i = 0; elements > 0 && i < tensor.dim(); ++i) elements += (tensor.size(i) - 1) * tensor.stride(i);
  return {begin, begin + elements * size, begin - tensor.storage_offset() * size, description.c_str(), by_data};
}

// The tensors that the thread's call of host code has used so far.
class LaunchedTensors {
 public:
  LaunchedTensors() {
    const HostCall* const call = HostCall::current();
    if (call == nullptr) {
      fail("the emulator runs launches of the thread that called host code, not of one that it started");
    }
    for (const UsedTensor& each : call->used()) {
      descriptions_.push_back(dtype_name(each.tensor.scalar_type()) + " " + listed(each.tensor.sizes()));
    }
    for (size_t i = 0; i < descriptions_.size(); ++i) {
      tensors_.push_back(described(call->used()[i].tensor, call->used()[i].by_data, descriptions_[i]));
    }
  }

  void give(emulator::HostLaunch& launch) const {
    launch.tensors = tensors_.data();
    launch.tensor_count = tensors_.size();
  }

 private:
  std::vector<std::string> descriptions_;
  std::vector<emulator::HostTensor> tensors_;
};

// Runs a launch to its end.
inline void start(emulator::HostLaunch& launch, const Geometry& geometry) {
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
