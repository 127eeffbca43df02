// Errors of host code: throwing a message, and keeping exceptions inside the library that threw them.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>

namespace opsmith __attribute__((visibility("hidden"))) {

// Throws the parts, written one after the other. The name of the exported function is put before them.
template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

// Throws where a call of torch's C shim has failed. (torch 2.11 and 2.13 each have a macro for this, under two names.)
inline void check(AOTITorchError code, const char* what) {
  if (code != AOTI_TORCH_SUCCESS) fail(what, " failed; torch's message is on stderr");
}

// Runs a boxed kernel. What it throws ends here and is raised by torch, inside torch's own library: a C++ exception
// that crosses from one copy of the C++ runtime into another (a compiler that links its own statically) kills the
// process.
template <typename Boxed>
void guarded(const char* name, Boxed&& boxed) {
  std::string message = name;
  try {
    boxed();
    return;
  } catch (const std::exception& error) {
    message += std::string(": ") + error.what();
  } catch (...) {
    message += ": an exception that is not a std::exception";
  }
  aoti_torch_check(false, name, __FILE__, __LINE__, message.c_str());
}

}  // namespace opsmith
