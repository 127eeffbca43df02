// Releases between blocks: atomic operations after a fence.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace opsmith::emulator {

// An atomic operation at an address where another thread has released sees everything that the other had written. A
// moment is a number that grows with each release of the launch.
class Releases {
 public:
  // The moment of the release that follows an access, or 0 if none has.
  uint64_t after(uint32_t serial, uint32_t releases) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = of_block_.find(serial);
    return found != of_block_.end() && releases < found->second.size() ? found->second[releases] : 0;
  }

  struct Moments {
    uint64_t seen;      // the latest released at the place before
    uint64_t released;  // by this operation, or 0
  };

  // An operation on global memory. Releases what the thread has written so far, to other blocks what the block has.
  Moments operate(uintptr_t address, uint32_t serial, bool to_block, bool to_device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!to_block && !to_device) {
      const auto found = latest_.find(address);
      return {found == latest_.end() ? 0 : found->second, 0};
    }
    uint64_t& latest = latest_[address];
    const uint64_t seen = latest;
    latest = next(serial, to_device);
    return {seen, latest};
  }

  // The latest released at a place.
  uint64_t latest(uintptr_t address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = latest_.find(address);
    return found == latest_.end() ? 0 : found->second;
  }

  // A release at a place that is the block's own.
  uint64_t release(uint32_t serial, bool to_device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return next(serial, to_device);
  }

 private:
  uint64_t next(uint32_t serial, bool to_device) {
    ++now_;
    if (to_device) of_block_[serial].push_back(now_);
    return now_;
  }

  std::mutex mutex_;
  uint64_t now_ = 0;
  // Only of blocks that have released anything: a grid may have 2^31 of them.
  std::unordered_map<uint32_t, std::vector<uint64_t>> of_block_;
  std::unordered_map<uintptr_t, uint64_t> latest_;  // moment released, by address
};

}  // namespace opsmith::emulator
