// What a thread of the machine does for a launch: it runs blocks one after another, and those of a cluster at once.
#pragma once

#include <memory>

#include "worker.h"

namespace opsmith::emulator {

// Blocks that are alone, until there are none or the launch is halted.
inline void run_single_blocks(Grid& grid, Workplace& place) {
  Cluster cluster;
  cluster.members.resize(1);
  Worker worker(grid, place.fibers, place.dynamic_shared, cluster, 0, nullptr);
  cluster.members[0] = worker.member();
  Schedule& schedule = worker.schedule();
  Taken taken(grid);
  Worker::current = &worker;
  for (uint64_t number; taken.next(number);) {
    cluster.begin(static_cast<uint32_t>(number) + 1);
    schedule.begin_block(number);
    while (!schedule.has_ended() && !grid.halted()) {
      if (!schedule.run_threads_once()) schedule.report_deadlock();
    }
  }
}

// The same for clusters. Their blocks take turns.
class ClusterRun {
 public:
  ClusterRun(Grid& grid, Workplace& place)
      : grid_(grid), windows_(grid.launch, grid.blocks_of_cluster, place.windows), order_(grid.blocks_of_cluster) {
    cluster_.members.resize(order_.size());
    for (uint32_t rank = 0; rank < order_.size(); ++rank) {
      order_[rank] = rank;
      workers_.push_back(
          std::make_unique<Worker>(grid, place.fibers, windows_.dynamic(rank), cluster_, rank, &windows_));
      cluster_.members[rank] = workers_.back()->member();
    }
  }

  void run() {
    Taken taken(grid_);
    for (uint64_t number; taken.next(number);) run_cluster(number);
  }

 private:
  // A block whose threads spin until another block does something yields after this many rounds.
  static constexpr int kRounds = 8;

  void run_cluster(uint64_t number) {
    std::mt19937_64 random(grid_.launch.seed * 0x9e3779b97f4a7c15ull + number);
    cluster_.begin(static_cast<uint32_t>(number * order_.size()) + 1);
    for (uint32_t rank = 0; rank < order_.size(); ++rank) {
      workers_[rank]->schedule().begin_block(number * order_.size() + rank);
    }
    for (bool has_ended = false; !has_ended;) {
      if (grid_.launch.checks && grid_.launch.seed != kInOrder) std::shuffle(order_.begin(), order_.end(), random);
      bool progress = false;
      has_ended = true;
      for (const uint32_t rank : order_) {
        progress |= run_block(rank);
        if (grid_.halted()) return;
        has_ended &= workers_[rank]->schedule().has_ended();
      }
      if (!has_ended && !progress) return report_deadlock();
    }
  }

  // Whether any thread of the block could go on.
  bool run_block(uint32_t rank) {
    Schedule& schedule = workers_[rank]->schedule();
    if (schedule.has_ended()) return false;
    bool progress = false;
    Worker::current = workers_[rank].get();
    windows_.begin_block(rank);
    for (int round = 0; round < kRounds && !schedule.has_ended() && !grid_.halted(); ++round) {
      if (!schedule.run_threads_once()) break;
      progress = true;
    }
    windows_.leave_block(rank);
    return progress;
  }

  // A block that waits for its own threads holds up the others.
  void report_deadlock() {
    for (const auto& worker : workers_) {
      if (worker->schedule().waits_for_itself()) return worker->schedule().report_deadlock();
    }
    workers_[0]->schedule().report_deadlock();
  }

  Grid& grid_;
  Windows windows_;
  Cluster cluster_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by rank
  std::vector<uint32_t> order_;                   // of ranks
};

inline void run_blocks(Grid& grid, Workplace& place) {
  struct Leaving {
    ~Leaving() { Worker::current = nullptr; }
  } leaving;
  place.fibers.take_all_back();
  if (grid.blocks_of_cluster > 1) {
    ClusterRun(grid, place).run();
  } else {
    run_single_blocks(grid, place);
  }
}

}  // namespace opsmith::emulator
