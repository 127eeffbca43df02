// What a kernel's accesses are held against: the extents of memory, what is initialised, and who touched what when.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "interface.h"

namespace opsmith::emulator {

// An access to a word of four bytes, and as much of its time as tells whether another one is ordered after it.
struct Access {
  int32_t pc = 0;         // from the kernel's entry
  uint32_t serial = 0;    // of the block, from 1; 0: none
  uint32_t epoch = 0;     // barriers of the block before it
  uint32_t clock = 0;     // synchronisations of the thread's warp before it
  uint32_t releases = 0;  // of the block, before it
  uint32_t own_releases = 0;  // of the thread, before it
  uint16_t thread = 0;
  uint8_t bytes = 0;  // which of the four
  uint8_t how = 0;    // Manner
};

enum Manner : uint8_t { plain = 0, volatile_access = 1, atomic_operation = 2, compare_and_swap = 3 };

// Of two threads that write one half each, both writes are kept.
struct Word {
  Access write, other_write, read, other_read;
};

// A Word for every four bytes of a piece of memory; what is never touched takes no memory.
class Shadow {
 public:
  Shadow() = default;
  Shadow(uintptr_t begin, uintptr_t end) : begin_(begin & ~uintptr_t{3}) {
    bytes_ = ((end - begin_ + 3) / 4 + 1) * sizeof(Word);
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    words_ = memory == MAP_FAILED ? nullptr : static_cast<Word*>(memory);
  }
  Shadow(Shadow&& other) noexcept : begin_(other.begin_), bytes_(other.bytes_), words_(other.words_) {
    other.words_ = nullptr;
  }
  Shadow& operator=(Shadow&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    std::swap(words_, other.words_);
    return *this;
  }
  ~Shadow() {
    if (words_ != nullptr) munmap(words_, bytes_);
  }

  Word* at(uintptr_t address) const { return words_ == nullptr ? nullptr : words_ + (address - begin_) / 4; }

 private:
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  Word* words_ = nullptr;
};

// Which releases of a block other blocks have seen. A release is an atomic operation after a fence; whoever then operates
// on the same place sees all that the block had written.
class Releases {
 public:
  explicit Releases(uint64_t blocks) : of_block_(blocks + 1) {}

  uint32_t count(uint32_t serial) const { return of_block_[serial].count.load(std::memory_order_acquire); }

  // The moment of the release that follows an access, or 0 if none has.
  uint64_t after(uint32_t serial, uint32_t releases) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto& moments = of_block_[serial].moments;
    return releases < moments.size() ? moments[releases] : 0;
  }

  struct Moments {
    uint64_t seen;      // the latest released at the address before
    uint64_t released;  // by this operation, or 0
  };

  // Releases what the thread has written so far, to other blocks what the block has.
  Moments operate(uintptr_t address, uint32_t serial, bool to_block, bool to_device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!to_block && !to_device) {
      const auto found = latest_.find(address);
      return {found == latest_.end() ? 0 : found->second, 0};
    }
    uint64_t& latest = latest_[address];
    const uint64_t seen = latest;
    latest = ++now_;
    if (to_device) {
      of_block_[serial].moments.push_back(now_);
      of_block_[serial].count.store(of_block_[serial].moments.size(), std::memory_order_release);
    }
    return {seen, now_};
  }

 private:
  struct OfBlock {
    std::vector<uint64_t> moments;
    std::atomic<uint32_t> count{0};
  };

  std::mutex mutex_;
  uint64_t now_ = 0;
  std::vector<OfBlock> of_block_;
  std::unordered_map<uintptr_t, uint64_t> latest_;  // moment released, by address
};

// The memory of all blocks: tensors and the library's variables, sorted by address.
class GlobalMemory {
 public:
  GlobalMemory(const Region* regions, size_t count, bool shadowed) : regions_(regions, regions + count) {
    order_.resize(count);
    for (size_t i = 0; i < count; ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return regions_[a].begin < regions_[b].begin; });
    if (shadowed) {
      for (const Region& region : regions_) shadows_.emplace_back(region.begin, region.end);
    }
  }

  // The region that holds the address, or the one that ends or begins nearest to it: what a wrong index can reach.
  int64_t nearest(uintptr_t address) const {
    int64_t best = -1;
    uintptr_t distance = ~uintptr_t{0};
    for (size_t i = 0; i < regions_.size(); ++i) {
      const Region& region = regions_[i];
      const uintptr_t away = address < region.begin ? region.begin - address
                             : address < region.end ? 0
                                                    : address - region.end + 1;
      if (away < distance && away < (region.kind == tensor ? kFar : kNear)) {
        distance = away;
        best = static_cast<int64_t>(i);
      }
    }
    return best;
  }

  int64_t find(uintptr_t address) const {
    size_t low = 0, high = order_.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (regions_[order_[middle]].end <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    // Regions may lie one in another, as views of one tensor do: the first that ends after the address need not hold it.
    for (; low < order_.size() && regions_[order_[low]].begin <= address; ++low) {
      if (address < regions_[order_[low]].end) return static_cast<int64_t>(order_[low]);
    }
    return -1;
  }

  const Region& operator[](int64_t index) const { return regions_[index]; }
  Word* word(int64_t region, uintptr_t address) { return shadows_.empty() ? nullptr : shadows_[region].at(address); }

  // Blocks on other cores look at the same words.
  class Lock {
   public:
    Lock(GlobalMemory& memory, uintptr_t address) : flag_(memory.locks_[(address >> 5) % kLocks]) {
      while (flag_.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Lock() { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag& flag_;
  };

 private:
  static constexpr size_t kLocks = 1024;
  static constexpr uintptr_t kFar = uintptr_t{1} << 37, kNear = 4096;  // 2^32 elements of 16 bytes; a page
  std::vector<Region> regions_;
  std::vector<size_t> order_;
  std::vector<Shadow> shadows_;
  std::atomic_flag locks_[kLocks] = {};
};

}  // namespace opsmith::emulator
