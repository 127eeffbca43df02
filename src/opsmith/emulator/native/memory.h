// The memory that all blocks of a launch may touch: its extents, and the history of its words.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "heap.h"
#include "history.h"
#include "interface.h"

namespace opsmith::emulator {

// The memory of all blocks: tensors and the library's variables, sorted by address. What kernels allocate is added when
// it is first touched.
class GlobalMemory {
 public:
  GlobalMemory(const Region* regions, size_t count, bool shadowed) : given_(count), order_(count) {
    size_t words = 0;
    for (size_t i = 0; shadowed && i < count; ++i) words += words_of(regions[i]);
    words_ = Words(words);
    Word* next = words_.get();
    reserve(count);
    for (size_t i = 0; i < count; ++i) {
      table()[i] = {regions[i], shadowed ? Shadow(regions[i].begin, next) : Shadow()};
      if (shadowed) next += words_of(regions[i]);
      order_[i] = i;
    }
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return regions[a].begin < regions[b].begin; });
  }

  // The region that holds the address, or the one that ends or begins nearest to it: what a wrong index can reach.
  int64_t nearest(uintptr_t address) const {
    int64_t best = -1;
    uintptr_t distance = ~uintptr_t{0};
    for (size_t i = 0; i < given_; ++i) {
      const Region& region = (*this)[i];
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

  uintptr_t distance(int64_t region, uintptr_t address) const {
    const Region& its = (*this)[region];
    return address < its.begin ? its.begin - address : address < its.end ? 0 : address - its.end;
  }

  int64_t find(uintptr_t address) const {
    size_t low = 0, high = order_.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if ((*this)[order_[middle]].end <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    // Regions may lie one in another, as views of one tensor do: the first that ends after the address need not hold it.
    for (; low < order_.size() && (*this)[order_[low]].begin <= address; ++low) {
      if (address < (*this)[order_[low]].end) return static_cast<int64_t>(order_[low]);
    }
    return -1;
  }

  const Region& operator[](int64_t index) const { return table()[index].region; }
  // Of a checked launch.
  Word& word(int64_t region, uintptr_t address) { return table()[region].shadow.at(address); }

  // The region of a piece that kernels have allocated.
  int64_t adopt(const Allocation& allocation) {
    const std::lock_guard<std::mutex> lock(adopting_);
    const auto [known, is_new] = adopted_.try_emplace(allocation.begin, given_ + adopted_.size() + retired_);
    if (!is_new) return known->second;
    reserve(known->second + 1);
    Words& words = words_of_adopted_.emplace_back(Shadow::count(allocation.begin, allocation.end));
    table()[known->second] = {{allocation.begin, allocation.end, allocated_memory, 0},
                              Shadow(allocation.begin, words.get())};
    return known->second;
  }

  // It has been freed: later lookups of its region find nothing.
  void retire(uintptr_t begin) {
    const std::lock_guard<std::mutex> lock(adopting_);
    const auto known = adopted_.find(begin);
    if (known == adopted_.end()) return;
    table()[known->second].region.end = begin;
    adopted_.erase(known);
    ++retired_;
  }

  // Blocks on other cores read the same words.
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

  // Constants are only read.
  static size_t words_of(const Region& region) {
    return region.kind == constant_variable ? 0 : Shadow::count(region.begin, region.end);
  }

  struct Entry {
    Region region;
    Shadow shadow;
  };

  Entry* table() const { return table_.load(std::memory_order_relaxed); }

  // A larger table takes the place of the one before, in which other workers may still be looking: that one stays.
  void reserve(size_t count) {
    if (count <= capacity_ && capacity_ > 0) return;
    const size_t capacity = std::max(count, 2 * capacity_);
    auto larger = std::make_unique<Entry[]>(std::max<size_t>(capacity, 1));
    if (capacity_ > 0) std::copy_n(table(), capacity_, larger.get());
    table_.store(larger.get(), std::memory_order_release);
    tables_.push_back(std::move(larger));
    capacity_ = std::max<size_t>(capacity, 1);
  }

  const size_t given_;  // regions that the launch came with
  std::vector<size_t> order_;
  Words words_;
  std::atomic<Entry*> table_{nullptr};
  size_t capacity_ = 0;
  std::vector<std::unique_ptr<Entry[]>> tables_;
  std::mutex adopting_;
  std::unordered_map<uintptr_t, int64_t> adopted_;  // regions of what has been allocated, by where it begins
  size_t retired_ = 0;
  std::deque<Words> words_of_adopted_;
  std::atomic_flag locks_[kLocks] = {};
};

}  // namespace opsmith::emulator
