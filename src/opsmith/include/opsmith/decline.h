// A call that a kernel does not support: the reference serves it.
//
//   if (x.size(1) > 4096) opsmith::decline();
#pragma once

#include <exception>

#include "errors.h"
#include "host.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

// The message by which the C++ runtime and Python (kernels/native.py) know such a call.
inline constexpr char kDeclined[] = "opsmith: the kernel declines this call";

class Declined : public std::exception {
 public:
  const char* what() const noexcept override { return kDeclined; }
};

}  // namespace detail

}  // namespace opsmith

// Only libraries whose host code can decline have this symbol: for others, callers need not keep the arguments.
extern "C" __attribute__((visibility("default"), noinline)) inline void opsmith_may_decline() { asm volatile(""); }

namespace opsmith __attribute__((visibility("hidden"))) {

// Ends the call; the reference serves it, as where a Python kernel returns NotImplemented. To be called before the
// first launch: what a kernel has changed in place stays changed. It costs an exception, tens of microseconds.
[[noreturn]] inline void decline() {
  opsmith_may_decline();
  throw detail::Declined();
}

namespace detail {

// Runs the boxed form of an exported function. What it throws is raised by torch (errors.h).
template <typename Boxed>
void exported(const char* name, const Host* host, Boxed&& boxed) {
  bool declined = false;
  guarded(name, [&] {
    try {
      boxed();
    } catch (const Declined&) {
      declined = true;
    }
  });
  if (!declined) return;
  if (host != nullptr && host->declined != nullptr) {
    host->declined();
  } else {
    aoti_torch_check(false, name, __FILE__, __LINE__, kDeclined);
  }
}

}  // namespace detail

}  // namespace opsmith
