// Which thread of a block runs: in what order they start, where they wait, and when they continue.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "cluster_barrier.h"
#include "warps.h"

namespace opsmith::emulator {

class Schedule {
 public:
  // `enter` calls run_threads of this schedule: by it a fiber begins.
  Schedule(Grid& grid, Block& block, Fibers& fibers, Reports& reports, Races& races, SharedMemory& shared,
           Neighbours& neighbours, Cluster& cluster, ClusterBarrier& cluster_barrier, Warps& warps, void (*enter)())
      : grid_(grid),
        block_(block),
        fibers_(fibers),
        reports_(reports),
        races_(races),
        shared_(shared),
        neighbours_(neighbours),
        cluster_(cluster),
        cluster_barrier_(cluster_barrier),
        warps_(warps),
        enter_(enter),
        checks_(grid.launch.checks != 0),
        order_(block.count) {
    for (uint32_t i = 0; i < block_.count; ++i) order_[i] = i;
  }

  void begin_block(uint64_t number) {
    block_.begin(grid_.index_of(number), number);
    position_ = 0;
    if (checks_) {
      races_.begin_block();
      shared_.begin_block();
      neighbours_.begin_block();
      arrange(number);
    }
  }

  bool has_ended() const { return block_.done == block_.count; }

  // Runs each thread that can continue until it yields. False if none can; a halted launch is reported.
  bool run_threads_once() {
    bool progress = false;
    // Threads that wait have started, in this order; the others start when an earlier one yields.
    for (uint32_t turn = 0; turn < block_.count; ++turn) {
      Thread& thread = block_.threads[order_[turn]];
      if (thread.state == State::unstarted && turn == position_) {
        ++position_;
        thread.fiber = fibers_.take();
        thread.fiber->begin_with(enter_);
        start(thread);
      } else if (thread.state == State::converging) {
        if (!warps_.converge(thread)) {
          progress = true;
          continue;
        }
      } else if (thread.state != State::ready) {
        continue;
      }
      progress = true;
      block_.self = &thread;
      block_.scheduler.switch_to(thread.fiber->context);
      block_.self = nullptr;
      if (grid_.halted()) {
        reports_.report_if_late(thread);
        return true;
      }
    }
    return progress;
  }

  // No thread of the block can go on, nor of its cluster.
  void report_deadlock() { reports_.report_deadlock(barrier_pc_); }
  bool waits_for_itself() const { return block_.in_warp > 0 || block_.at_barrier > 0; }

  // A fiber's life: the thread it was made for, then as many more as have not started.
  [[noreturn]] void run_threads() {
    for (;;) {
      run_kernel();
      Fiber* const fiber = block_.self->fiber;
      end_thread();
      if (position_ == block_.count || grid_.halted()) {
        fibers_.give_back(fiber);
        fiber->context.switch_to(block_.scheduler);
        __builtin_unreachable();  // a fiber that is reused starts over
      }
      Thread& next = block_.threads[order_[position_++]];
      next.fiber = fiber;
      start(next);
    }
  }

  int barrier(int kind, int predicate, int line, uintptr_t pc) {
    Thread& self = *block_.self;
    self.pc = pc;
    self.line = line;
    if (block_.at_barrier == 0) {
      barrier_sum_ = kind == 1 ? 1 : 0;
      barrier_kind_ = kind;
      barrier_pc_ = pc;
    }
    barrier_sum_ = kind == 1 ? barrier_sum_ & (predicate != 0) : barrier_sum_ + (predicate != 0);
    ++block_.at_barrier;
    if (checks_ && block_.done > 0) reports_.fail_partial_barrier();
    if (block_.at_barrier == block_.count - block_.done) {
      complete_barrier();
      reports_.stop_if_halted(pc);  // a thread that is alone in its block may never yield
      return self.result;
    }
    self.state = State::at_barrier;
    block_.give_way();
    return self.result;
  }

 private:
  // Another order of warps, and of lanes within them, for each block and seed.
  void arrange(uint64_t number) {
    if (grid_.launch.seed == kInOrder || block_.count == 1) return;
    std::mt19937_64 random(grid_.launch.seed * 0x9e3779b97f4a7c15ull + number);
    std::vector<uint32_t> warps(block_.warps);
    for (uint32_t i = 0; i < block_.warps; ++i) warps[i] = i;
    std::shuffle(warps.begin(), warps.end(), random);
    uint32_t position = 0;
    for (uint32_t warp : warps) {
      const uint32_t first = position;
      for (uint32_t i = warp * kLanes; i < std::min(block_.count, (warp + 1) * kLanes); ++i) order_[position++] = i;
      std::shuffle(order_.begin() + first, order_.begin() + position, random);
    }
  }

  void start(Thread& thread) {
    thread.index = block_.index_of(thread.number);
    thread.state = State::ready;
    block_.self = &thread;
  }

  void run_kernel() {
    try {
      grid_.launch.entry(grid_.launch.arguments);
      return;
    } catch (const std::exception& error) {
      std::snprintf(exception_detail_, sizeof(exception_detail_), "%s", error.what());
    } catch (...) {
    }
    reports_.fail(uncaught_exception, 0, exception_detail_);
  }

  void end_thread() {
    block_.self->state = State::done;
    ++block_.done;
    if (has_ended() && checks_) end_block();
    if (block_.in_warp > 0) warps_.complete_without(block_.self->number);
    if (block_.at_barrier > 0) {
      if (checks_) reports_.fail_partial_barrier();
      if (block_.at_barrier == block_.count - block_.done) complete_barrier();
    }
    cluster_barrier_.end_thread();
  }

  void end_block() {
    if (cluster_.size > 1) neighbours_.end_block();
    for (const Cluster::Member& each : cluster_.members) {
      if (each.block->done < each.block->count) return;
    }
    for (const Cluster::Member& each : cluster_.members) each.shared->fail_if_uninitialised(reports_);
  }

  void complete_barrier() {
    // Other blocks of a cluster may yet write what this one has read.
    if (cluster_.size == 1) shared_.fail_if_uninitialised(reports_);
    const int result = barrier_kind_ == 2 ? barrier_sum_ != 0 : barrier_sum_;
    if (checks_) {
      for (const Thread& thread : block_.threads) {
        if (thread.line != block_.self->line) reports_.fail_different_barriers();
      }
      races_.join_block();
    }
    for (Thread& thread : block_.threads) {
      thread.result = result;
      if (thread.state == State::at_barrier) thread.state = State::ready;
    }
    block_.at_barrier = 0;
    ++block_.epoch;
  }

  Grid& grid_;
  Block& block_;
  Fibers& fibers_;
  Reports& reports_;
  Races& races_;
  SharedMemory& shared_;
  Neighbours& neighbours_;
  Cluster& cluster_;
  ClusterBarrier& cluster_barrier_;
  Warps& warps_;
  void (*const enter_)();
  const bool checks_;
  std::vector<uint32_t> order_;
  uint32_t position_ = 0;  // in order_, of the next thread to start
  int barrier_sum_ = 0, barrier_kind_ = 0;
  uintptr_t barrier_pc_ = 0;
  char exception_detail_[sizeof(Fault::detail)] = "";
};

}  // namespace opsmith::emulator
