// What the C++ runtime knows of an operator's generated kernels. Python adds to it after a call that it ran
// (generate/publish.py).
#pragma once

#include <unordered_map>

#include "kernels.h"
#include "record.h"

namespace opsmith {

// An operator's generated kernels on one device.
struct Generated {
  std::shared_ptr<Record> record;
  size_t device;
  const void* owner;          // the attachment's handle in Python
  std::vector<bool> statics;  // the arguments whose values are compiled in
  std::atomic<bool> active{true};  // until the author writes a kernel for this device
  Table<const Prepared*> by_arguments;
  std::unordered_map<uint64_t, std::unique_ptr<Prepared>> programs;  // by their id() in Python
};

// The call that this thread has passed to Python, which then publishes what ran it.
struct Pending {
  std::shared_ptr<Generated> generated;
  const Key* key;
  Pending* outer;

  Pending(std::shared_ptr<Generated> generated, const Key* key)
      : generated(std::move(generated)), key(key), outer(innermost()) {
    innermost() = this;
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() { innermost() = outer; }

  static Pending*& innermost() {
    static thread_local Pending* innermost = nullptr;
    return innermost;
  }
  static Pending* of(const void* owner, size_t device) {
    Pending* pending = innermost();
    const bool ours =
        pending != nullptr && pending->generated->owner == owner && pending->generated->device == device;
    return ours ? pending : nullptr;
  }
};

}  // namespace opsmith
