// The shared memory of the blocks of a cluster, in a place where each block can access that of the others.
//
// Each block has a window of its own, which contains its dynamic shared memory. Static shared memory is thread-local,
// and so belongs to the block that is running; the windows keep that of the others in the meantime.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <stdexcept>

#include "interface.h"

namespace opsmith::emulator {

// Memory that a thread of the machine reuses from one launch to the next.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  ~Mapping() { release(); }

  // Pages that are never touched take no memory.
  char* reserve(size_t bytes) {
    if (bytes <= bytes_) return memory_;
    release();
    void* const found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) throw std::runtime_error("the system has no memory for the shared memory of a block");
    memory_ = static_cast<char*>(found);
    bytes_ = bytes;
    return memory_;
  }

 private:
  void release() {
    if (bytes_ > 0) munmap(memory_, bytes_);
    bytes_ = 0;
  }

  char* memory_ = nullptr;
  size_t bytes_ = 0;
};

// The bytes of the library's thread-local variables, on the machine's thread that asks.
struct StaticExtent {
  uintptr_t begin = 1, end = 1;

  explicit StaticExtent(const Launch& launch) {
    if (launch.shared_variable_count == 0) return;
    const uintptr_t base = reinterpret_cast<uintptr_t>(launch.shared_base());
    begin = ~uintptr_t{0};
    end = 0;
    for (size_t i = 0; i < launch.shared_variable_count; ++i) {
      begin = std::min(begin, base + launch.shared_variables[i].begin);
      end = std::max(end, base + launch.shared_variables[i].end);
    }
  }
};

class Windows {
 public:
  static constexpr size_t kDynamicBytes = 1 << 20;  // more than any GPU has
  // Unused bytes after the dynamic and after the static shared memory.
  static constexpr size_t kRedZone = 4096, kBehindStatic = 256;

  // A place in the shared memory of a block.
  struct Place {
    uint32_t rank;
    bool is_static;
    uintptr_t address;  // that it has where its block runs
  };

  Windows(const Launch& launch, uint32_t count, Mapping& mapping)
      : statics_(launch),
        static_offset_(kDynamicBytes + 2 * kRedZone + statics_.begin % kRedZone),
        stride_((static_offset_ + bytes() + 2 * kRedZone) / kRedZone * kRedZone),
        count_(count),
        memory_(mapping.reserve((count + 1) * stride_)) {
    for (uint32_t rank = 0; rank < count_; ++rank) std::memset(window(rank), 0, bytes());
    std::memcpy(window(count_), statics(), bytes());
  }
  Windows(const Windows&) = delete;
  // Restores the thread's variables.
  ~Windows() { std::memcpy(statics(), window(count_), bytes()); }

  void begin_block(uint32_t rank) { std::memcpy(statics(), window(rank), bytes()); }
  void leave_block(uint32_t rank) { std::memcpy(window(rank), statics(), bytes()); }

  void* dynamic(uint32_t rank) const { return memory_ + rank * stride_; }

  // The place of an address in one of the windows. False for any other.
  bool find(uintptr_t address, Place& place) const {
    const uintptr_t offset = address - reinterpret_cast<uintptr_t>(memory_);
    if (offset >= count_ * stride_) return false;
    place.rank = static_cast<uint32_t>(offset / stride_);
    place.is_static = offset % stride_ >= kDynamicBytes + kRedZone;
    place.address = place.is_static ? statics_.begin + (offset % stride_ - static_offset_) : address;
    return true;
  }

  // The address in another block's window of what the running block has at an address.
  uintptr_t in_window(uint32_t rank, const Place& place) const {
    if (!place.is_static) return place.address - place.rank * stride_ + rank * stride_;
    return reinterpret_cast<uintptr_t>(window(rank)) + (place.address - statics_.begin);
  }

 private:
  size_t bytes() const { return statics_.end - statics_.begin; }
  char* statics() const { return reinterpret_cast<char*>(statics_.begin); }
  char* window(uint32_t rank) const { return memory_ + rank * stride_ + static_offset_; }

  const StaticExtent statics_;
  const size_t static_offset_, stride_;
  const uint32_t count_;
  char* const memory_;
};

}  // namespace opsmith::emulator
