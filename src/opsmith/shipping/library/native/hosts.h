// Kernels by name for the host code of extensions, from the images in a shipped library.
#pragma once

#include <cstdio>
#include <deque>
#include <mutex>
#include <string>

#include "gpu.h"

namespace opsmith::shipped {

// The host code of one extension, and the kernels that it has asked for.
class HostCode {
 public:
  explicit HostCode(const HostData& data) : data_(data), host_{this, &find, &allow, nullptr, &decline} {
    if (data.set != nullptr) data.set(&host_);
  }
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;

  // Whether this thread's call of host code has declined; asked once.
  static bool has_declined() { return std::exchange(declined(), false); }

 private:
  struct Loaded {
    std::string name;
    int device;
    KernelInfo info;
    int64_t shared_bytes;  // dynamic ones that were allowed
  };

  static bool& declined() {
    static thread_local bool flag = false;
    return flag;
  }
  static void decline() { declined() = true; }

  static Found find(
      void* context, const char* name, int32_t device, const KernelInfo** kernel, char* message, uint64_t capacity) {
    return static_cast<HostCode*>(context)->answer(message, capacity, [&](HostCode& self) {
      Loaded* found = self.known(name, device);
      if (found == nullptr) found = self.load(name, device);
      if (found != nullptr) {
        *kernel = &found->info;
        return Found::found;
      }
      std::snprintf(message, capacity, "this library has no kernel %s for cuda:%d", name, device);
      return Found::declined;
    });
  }

  static Found allow(
      void* context, const char* name, int32_t device, int64_t threads, int64_t shared_bytes, char* message,
      uint64_t capacity) {
    return static_cast<HostCode*>(context)->answer(message, capacity, [&](HostCode& self) {
      Loaded& found = *self.known(name, device);
      if (threads > found.info.max_threads) {
        fail(name, ": a block of ", threads, " threads is more than the ", found.info.max_threads,
             " that this kernel can have.\n  ", found.info.declared);
      }
      if (shared_bytes <= found.shared_bytes) return Found::found;
      if (Gpus::get().allow_shared(shared_bytes, found.info.function, device) != 0) {
        fail(name, ": a block asks for ", shared_bytes, " bytes of dynamic shared memory, and cuda:", device, " has ",
             Driver::get().attribute(Driver::kSharedBytes, device), " in all.\n  ", found.info.declared);
      }
      found.shared_bytes = shared_bytes;
      return Found::found;
    });
  }

  // No exception may leave: host code is another part of the library, perhaps built by another compiler.
  template <typename Question>
  Found answer(char* message, uint64_t capacity, Question&& question) {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
      return question(*this);
    } catch (const std::exception& error) {
      std::snprintf(message, capacity, "%s", error.what());
      return Found::failed;
    }
  }

  Loaded* known(const char* name, int device) {
    for (Loaded& each : loaded_) {
      if (each.device == device && each.name == name) return &each;
    }
    return nullptr;
  }

  Loaded* load(const char* name, int device) {
    for (const NamedKernelData& each : data_.kernels) {
      if (std::strcmp(each.name, name) != 0) continue;
      void* const function = Gpus::get().load(each.images, each.entry, device);
      if (function == nullptr) return nullptr;
      const auto attribute = [&](int which) { return Gpus::get().kernel_attribute(which, function, device); };
      const KernelInfo info{each.declared, function, each.parameters.begin(), each.parameters.count,
                            attribute(Gpus::kMostThreads), attribute(Gpus::kStaticShared)};
      return &loaded_.emplace_back(Loaded{name, device, info, 0});
    }
    return nullptr;
  }

  const HostData data_;
  const Host host_;
  std::deque<Loaded> loaded_;
  std::mutex mutex_;
};

}  // namespace opsmith::shipped
