// Host code for the emulator: CPU tensors stand for those of a GPU, and the tensors that it uses are remembered.
//
// A kernel is given pointers. Which memory each of them may touch is known of the tensors that host code has made or has
// asked for their elements, and of those it was called with, which Python knows.
#pragma once

#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

#include "../native/host.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

inline constexpr bool kEmulated = true;

struct UsedTensor {
  torch::stable::Tensor tensor;  // kept, so that no other tensor comes to lie in its memory during the call
  bool by_data;
};

// A call of an exported function, as long as it lasts.
class HostCall {
 public:
  HostCall() : before_(*emulator::opsmith_host_frame()) { *emulator::opsmith_host_frame() = this; }
  ~HostCall() { *emulator::opsmith_host_frame() = before_; }
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  // Null on a thread that host code has started.
  static HostCall* current() { return static_cast<HostCall*>(*emulator::opsmith_host_frame()); }

  void add(const torch::stable::Tensor& tensor, bool by_data) {
    for (UsedTensor& known : used_) {
      if (known.tensor.get() == tensor.get()) {
        known.by_data = known.by_data || by_data;
        return;
      }
    }
    used_.push_back({tensor, by_data});
  }

  const std::vector<UsedTensor>& used() const { return used_; }

 private:
  void* before_;
  std::vector<UsedTensor> used_;
};

inline void remember(const torch::stable::Tensor& tensor, bool by_data) {
  if (HostCall* const call = HostCall::current()) call->add(tensor, by_data);
}

}  // namespace detail

}  // namespace opsmith

// Host code that asks a tensor itself where it is must go the way of the GPU as well. (The two headers of torch that
// declare a function of this name are included above.)
#define is_cuda() is_cpu()
