// What the workers of a launch share: which block is next, the memory, what is printed, and the first fault.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "code.h"
#include "memory.h"
#include "printing.h"
#include "releases.h"

namespace opsmith::emulator {

// Why the workers are to end before all blocks have.
enum class Halt : uint8_t { none, late, stopped };

struct Grid {
  explicit Grid(const Launch& given)
      : launch(given),
        blocks(uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z),
        memory(launch.regions, launch.region_count, launch.checks != 0) {}

  const Launch launch;
  const uint64_t blocks;
  GlobalMemory memory;
  Releases releases;
  Printed printed;
  Endable endable;
  std::atomic<uint64_t> next{0};
  std::atomic<Halt> halt{Halt::none};
  std::atomic<uint64_t> put_off{~uint64_t{0}};  // the block that was to begin when the launch was late

  bool halted() const { return halt.load(std::memory_order_relaxed) != Halt::none; }

  // The first one counts, and stops all workers.
  void report(const Fault& found) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (halt.exchange(Halt::stopped) != Halt::stopped) fault_ = found;
  }

  // Once the workers have ended.
  Fault fault() const {
    if (halt.load() != Halt::late || put_off == ~uint64_t{0}) return fault_;
    Fault between_blocks = late_fault();
    between_blocks.block = index_of(put_off);
    return between_blocks;
  }

  // What is the same of a launch that is late wherever its threads are.
  Fault late_fault() const {
    Fault fault{};
    fault.kind = hang;
    const unsigned long long begun = std::min(next.load(), blocks), all = blocks;
    std::snprintf(fault.words, sizeof(fault.words), "%llu of %llu blocks have begun", begun, all);
    return fault;
  }

  // The indices of a block, by its number in the grid.
  Dim index_of(uint64_t number) const {
    const uint64_t x = launch.grid.x, y = launch.grid.y;
    if (number < x) return {unsigned(number), 0, 0};
    return {unsigned(number % x), unsigned(number / x % y), unsigned(number / x / y)};
  }

 private:
  std::mutex mutex_;
  Fault fault_{};
};

}  // namespace opsmith::emulator
