// Memory that kernels allocate, by malloc and new. It lives until it is freed, as on a GPU: also from launch to launch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace opsmith::emulator {

struct Allocation {
  uintptr_t begin, end;
  uintptr_t pc;        // where it was made
  uintptr_t freed_at;  // and where it was freed; 0 while it lives

  bool holds(uintptr_t address) const { return address >= begin && address < end; }
};

class Heap {
 public:
  // What a GPU has for it unless the host asks for more (cudaLimitMallocHeapSize). Beyond that malloc gives null.
  static constexpr size_t kMost = size_t{8} << 20;
  // Unused bytes before and behind each piece.
  static constexpr uintptr_t kMargin = 256;

  // Of the process; never destroyed, for threads may outlive its variables.
  static Heap& instance() {
    static Heap& heap = *new Heap;
    return heap;
  }

  // Around fork: no thread is changing it.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

  // Filled with what is NaN to a float and -1 to an integer: a GPU promises no zeros.
  void* allocate(size_t bytes, size_t alignment, uintptr_t pc) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uintptr_t step = std::max<uintptr_t>(alignment, 16);
    if (bytes > kMost - living_ || step > kMost) return nullptr;
    void* const memory = std::malloc(bytes + 2 * kMargin + step);
    if (memory == nullptr) return nullptr;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kMargin + step - 1) & ~(step - 1);
    std::memset(reinterpret_cast<void*>(begin), 0xff, bytes);
    pieces_[begin] = {{begin, begin + bytes, pc, 0}, memory};
    living_ += bytes;
    return reinterpret_cast<void*>(begin);
  }

  enum class Freed { now, before, never_allocated };

  // Freed memory is kept for a while, so that later uses of it are found.
  Freed free(uintptr_t address, uintptr_t pc) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pieces_.find(address);
    if (found == pieces_.end()) return Freed::never_allocated;
    Allocation& its = found->second.allocation;
    if (its.freed_at != 0) return Freed::before;
    its.freed_at = pc;
    living_ -= its.end - its.begin;
    freed_.push_back(address);
    kept_ += its.end - its.begin;
    while (kept_ > kMost || freed_.size() > kMostKept) forget_oldest();
    return Freed::now;
  }

  // The piece that an address is in, or so little before or behind it that no other can be meant.
  std::optional<Allocation> find(uintptr_t address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = pieces_.upper_bound(address + kMargin);
    if (found == pieces_.begin()) return std::nullopt;
    const Allocation& its = (--found)->second.allocation;
    if (address >= its.end + kMargin) return std::nullopt;
    return its;
  }

 private:
  static constexpr size_t kMostKept = 1 << 16;

  struct Piece {
    Allocation allocation;
    void* memory;
  };

  void forget_oldest() {
    const auto oldest = pieces_.find(freed_.front());
    freed_.pop_front();
    kept_ -= oldest->second.allocation.end - oldest->second.allocation.begin;
    std::free(oldest->second.memory);
    pieces_.erase(oldest);
  }

  std::mutex mutex_;
  std::map<uintptr_t, Piece> pieces_;  // by where they begin
  std::deque<uintptr_t> freed_;        // in the order in which they were
  size_t living_ = 0, kept_ = 0;       // bytes that are not freed, and that are
};

}  // namespace opsmith::emulator
