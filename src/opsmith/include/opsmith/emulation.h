// Calls of host code to the emulator (`opsmith.emulate`) if it is compiled for it; no code for a GPU.
#pragma once

#ifdef OPSMITH_EMULATOR
#include <opsmith_host_tensors.h>
#else

#include <torch/csrc/stable/tensor.h>

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

inline constexpr bool kEmulated = false;

// A call of an exported function, as long as it lasts.
class HostCall {
 public:
  HostCall() : before_(flag()) { flag() = false; }
  ~HostCall() { flag() = before_; }
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  // Whether the thread's call has launched a kernel by name.
  static bool has_launched() { return flag(); }
  static void launched() { flag() = true; }

 private:
  static bool& flag() {
    static thread_local bool launched = false;
    return launched;
  }
  bool before_;
};

inline void remember(const torch::stable::Tensor&, bool) {}

}  // namespace detail

}  // namespace opsmith

#endif
