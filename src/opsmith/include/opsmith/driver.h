// The CUDA driver, found in the process when it is first needed: libraries that use it are built without CUDA's headers
// and load on machines without a GPU.
#pragma once

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "errors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

class Driver {
 public:
  static constexpr int kInvalidContext = 201;
  static constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76, kSharedBytes = 97;  // CUdevice_attribute
  static constexpr size_t kMostDevices = 64;

  // CUlaunchAttribute and CUlaunchConfig.
  struct alignas(8) Attribute {
    int id;
    int padding;
    int value[16];
  };
  struct Configuration {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    void* stream;
    Attribute* attributes;
    unsigned attribute_count;
  };
  static_assert(sizeof(Attribute) == 72 && sizeof(Configuration) == 56, "as in cuda.h");

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

  template <typename Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) fail(name, " is missing in the CUDA driver: ", dlerror());
  }

  // The error code, 0 for none.
  int launch(const Configuration& configuration, void* kernel, void** parameters) const {
    return launch_kernel_(&configuration, kernel, parameters, nullptr);
  }

  std::string error_text(int code) const {
    const char* message = nullptr;
    error_string_(code, &message);
    return message == nullptr ? "unknown error" : message;
  }
  void require(int code, const char* what) const {
    if (code != 0) fail(what, " failed: ", error_text(code));
  }

  // The context that torch uses on a GPU.
  void* context(int index) const {
    std::atomic<void*>& known = contexts_.at(static_cast<size_t>(index));
    void* found = known.load(std::memory_order_acquire);
    if (found == nullptr) {
      require(retain_context_(&found, device(index)), "cuDevicePrimaryCtxRetain");
      known.store(found, std::memory_order_release);
    }
    return found;
  }
  void enter(int index) const { require(set_context_(context(index)), "cuCtxSetCurrent"); }
  // Whether this thread's current context is one of that GPU.
  bool is_current(int index) const {
    int current = -1;
    return context_device_(&current) == 0 && current == device(index);
  }
  void push(int index) const { require(push_context_(context(index)), "cuCtxPushCurrent"); }
  void pop() const {
    void* left = nullptr;
    pop_context_(&left);
  }

  int device(int index) const {
    int found = 0;
    require(device_get_(&found, index), "cuDeviceGet");
    return found;
  }
  int attribute(int attribute, int index) const {
    int value = 0;
    require(device_attribute_(&value, attribute, device(index)), "cuDeviceGetAttribute");
    return value;
  }

  // Whether work on a stream becomes part of a CUDA graph.
  bool is_capturing(void* stream) const {
    int status = 0;
    require(is_capturing_(stream, &status), "cuStreamIsCapturing");
    return status != 0;
  }

 private:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    if (library_ == nullptr) fail("the CUDA driver cannot be loaded: ", dlerror());
    find("cuLaunchKernelEx", launch_kernel_);
    find("cuGetErrorString", error_string_);
    find("cuDeviceGet", device_get_);
    find("cuDeviceGetAttribute", device_attribute_);
    find("cuDevicePrimaryCtxRetain", retain_context_);
    find("cuCtxSetCurrent", set_context_);
    find("cuCtxGetDevice", context_device_);
    find("cuCtxPushCurrent_v2", push_context_);
    find("cuCtxPopCurrent_v2", pop_context_);
    find("cuStreamIsCapturing", is_capturing_);
  }

  void* library_;
  int (*launch_kernel_)(const Configuration*, void*, void**, void**);
  int (*error_string_)(int, const char**);
  int (*device_get_)(int*, int);
  int (*device_attribute_)(int*, int, int);
  int (*retain_context_)(void**, int);
  int (*set_context_)(void*);
  int (*context_device_)(int*);
  int (*push_context_)(void*);
  int (*pop_context_)(void**);
  int (*is_capturing_)(void*, int*);
  mutable std::array<std::atomic<void*>, kMostDevices> contexts_{};  // retained once, and kept
};

// A GPU's context is this thread's current one, as long as this object lives.
class CurrentContext {
 public:
  explicit CurrentContext(int index) : pushed_(!Driver::get().is_current(index)) {
    if (pushed_) Driver::get().push(index);
  }
  ~CurrentContext() {
    if (pushed_) Driver::get().pop();
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const bool pushed_;
};

}  // namespace opsmith
