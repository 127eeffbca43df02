// The state that the workers of a launch share: the next block, the memory, printed output, and the first fault.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <random>

#include "code.h"
#include "memory.h"
#include "printing.h"
#include "releases.h"

namespace opsmith::emulator {

// Why the workers end before all blocks have run.
enum class Halt : uint8_t { none, late, stopped };

struct Grid {
  explicit Grid(const Launch& given)
      : launch(given),
        blocks(uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z),
        blocks_of_cluster(launch.cluster.x * launch.cluster.y * launch.cluster.z),
        clusters(blocks / blocks_of_cluster),
        memory(launch.regions, launch.region_count, launch.checks != 0) {}

  const Launch launch;
  const uint64_t blocks;
  const uint32_t blocks_of_cluster;
  const uint64_t clusters;  // as many as blocks where the launch has none
  GlobalMemory memory;
  Releases releases;
  Printed printed;
  Endable endable;
  std::atomic<uint64_t> next{0};  // cluster
  std::atomic<Halt> halt{Halt::none};
  std::atomic<uint64_t> put_off{~uint64_t{0}};  // the cluster that was to begin when the launch was late

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
    between_blocks.block = index_of(put_off * blocks_of_cluster);
    return between_blocks;
  }

  // The part of the fault of a late launch that does not depend on where its threads are.
  Fault late_fault() const {
    Fault fault{};
    fault.kind = hang;
    const unsigned long long begun = std::min(next.load(), clusters) * blocks_of_cluster, all = blocks;
    std::snprintf(fault.detail, sizeof(fault.detail), "%llu of %llu blocks have begun", begun, all);
    return fault;
  }

  // The indices of a block, by its number in the grid: those of a cluster have numbers that follow each other.
  Dim index_of(uint64_t number) const {
    if (blocks_of_cluster > 1) return index_in_cluster(number / blocks_of_cluster, number % blocks_of_cluster);
    const uint64_t x = launch.grid.x, y = launch.grid.y;
    if (number < x) return {unsigned(number), 0, 0};
    return {unsigned(number % x), unsigned(number / x % y), unsigned(number / x / y)};
  }

 private:
  Dim index_in_cluster(uint64_t cluster, uint32_t rank) const {
    const Dim size = launch.cluster;
    const uint64_t x = launch.grid.x / size.x, y = launch.grid.y / size.y;
    return {unsigned(cluster % x) * size.x + rank % size.x,
            unsigned(cluster / x % y) * size.y + rank / size.x % size.y,
            unsigned(cluster / x / y) * size.z + rank / size.x / size.y};
  }

  std::mutex mutex_;
  Fault fault_{};
};

// The clusters that one worker takes, in the order that the seed gives.
class Taken {
 public:
  explicit Taken(Grid& grid) : grid_(grid) {
    std::mt19937_64 random(grid_.launch.seed);
    const bool in_order = grid_.launch.seed == kInOrder;
    rotation_ = grid_.clusters && !in_order ? random() % grid_.clusters : 0;
    backwards_ = !in_order && random() & 1;
  }

  // The number of the next one. False where there is none, or the launch is halted.
  bool next(uint64_t& number) {
    const uint64_t taken = grid_.next.fetch_add(1);
    if (taken >= grid_.clusters) return false;
    number = taken + rotation_;
    if (number >= grid_.clusters) number -= grid_.clusters;
    if (backwards_) number = grid_.clusters - 1 - number;
    if (!grid_.halted()) return true;
    grid_.put_off = number;
    return false;
  }

 private:
  Grid& grid_;
  uint64_t rotation_ = 0;
  bool backwards_ = false;
};

}  // namespace opsmith::emulator
