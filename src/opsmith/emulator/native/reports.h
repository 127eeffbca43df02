// Faults as they are reported to Python: what happened, in which thread, and where the others wait.
#pragma once

#include <cstdio>

#include "clusters.h"

namespace opsmith::emulator {

class Reports {
 public:
  Reports(Grid& grid, Block& block, Cluster& cluster) : grid_(grid), block_(block), cluster_(cluster) {}

  // Of the running thread, which does not continue.
  [[noreturn]] void fail(const Fault& fault) { fail_of(block_.self->index, fault); }

  // Of a thread that need not be the running one.
  [[noreturn]] void fail_of(Dim thread, const Fault& fault) { fail_of(block_, thread, fault); }

  // Of a thread of any block of the cluster.
  [[noreturn]] void fail_of(const Block& block, Dim thread, Fault fault) {
    fault.block = block.index;
    fault.thread = thread;
    grid_.report(fault);
    block_.leave();
  }

  [[noreturn]] void fail(FaultKind kind, uintptr_t pc, const char* detail = "") {
    Fault fault{};
    fault.kind = kind;
    fault.pc = pc;
    fault.region = -1;
    std::snprintf(fault.detail, sizeof(fault.detail), "%s", detail);
    fail(fault);
  }

  // Ends the running thread where the launch is late or has been stopped.
  void stop_if_halted(uintptr_t pc) {
    if (!grid_.halted()) [[likely]] return;
    if (grid_.halt.load() == Halt::late) fail_hang(pc);
    block_.leave();
  }

  [[noreturn]] void fail_hang(uintptr_t pc) {
    block_.self->pc = pc;
    Fault fault = grid_.late_fault();
    fault.pc = pc;
    list_waits(fault);
    fail(fault);
  }

  // Where the scheduler finds the launch halted: reported for the thread that has just run.
  void report_if_late(const Thread& last) {
    if (grid_.halt.load() != Halt::late || block_.done == block_.count) return;
    Fault fault = grid_.late_fault();
    fault.block = block_.index;
    fault.thread = last.index;
    fault.pc = last.pc;
    list_waits(fault);
    grid_.report(fault);
  }

  // Called when a thread is at the barrier.
  [[noreturn]] void fail_partial_barrier() {
    Fault fault{};
    const Thread* waiting = block_.self;
    for (const Thread& thread : block_.threads) {
      if (waiting->state == State::done && thread.state == State::at_barrier) waiting = &thread;
    }
    std::snprintf(fault.detail, sizeof(fault.detail), "%u of %u threads have returned from the kernel", block_.done,
                  block_.count);
    fail_barrier(fault, *waiting);
  }

  [[noreturn]] void fail_different_barriers() {
    Fault fault{};
    std::snprintf(fault.detail, sizeof(fault.detail), "its threads are at different ones");
    fail_barrier(fault, *block_.self);
  }

  // Not all threads of the cluster reach its barrier: reported for one that has.
  [[noreturn]] void fail_cluster_barrier() {
    Fault fault = cluster_barrier_fault();
    std::snprintf(fault.detail, sizeof(fault.detail), "%u of %u threads have returned from the kernel",
                  cluster_.absent(),
                  cluster_.threads());
    grid_.report(fault);
    block_.leave();
  }

  // An operation of a warp, by a thread that need not be the running one.
  [[noreturn]] void fail_lane(const Thread& whose, const char* detail, uint32_t mask, uint32_t lane, uintptr_t pc) {
    Fault fault{};
    fault.kind = inactive_lane;
    fault.pc = pc;
    fault.mask = mask;
    fault.lane = lane;
    std::snprintf(fault.detail, sizeof(fault.detail), "%s", detail);
    fail_of(whose.index, fault);
  }

  // No thread can continue: some wait at a barrier, others for lanes that never arrive.
  void report_deadlock(uintptr_t barrier_pc) {
    if (block_.in_warp == 0 && block_.at_barrier == 0) return report_cluster_deadlock();
    Fault fault{};
    fault.block = block_.index;
    list_waits(fault);
    const Thread* at_barrier = nullptr;
    for (const Thread& thread : block_.threads) {
      if (thread.state == State::in_warp) {
        describe_missing_lane(fault, thread);
        grid_.report(fault);
        return;
      }
      if (thread.state == State::at_barrier) at_barrier = &thread;
    }
    fault.kind = partial_barrier;
    fault.pc = barrier_pc;
    if (at_barrier != nullptr) fault.thread = at_barrier->index;
    std::snprintf(fault.detail, sizeof(fault.detail), "%u of %u threads wait at it", block_.at_barrier, block_.count);
    grid_.report(fault);
  }

 private:
  [[noreturn]] void fail_barrier(Fault& fault, const Thread& waiting) {
    fault.kind = partial_barrier;
    fault.pc = waiting.pc;
    list_waits(fault);
    fail_of(waiting.index, fault);
  }

  void report_cluster_deadlock() {
    Fault fault = cluster_barrier_fault();
    std::snprintf(fault.detail, sizeof(fault.detail), "%u of %u threads of the cluster have arrived at it",
                  cluster_.arrived,
                  cluster_.threads());
    grid_.report(fault);
  }

  // Of the first thread that waits.
  Fault cluster_barrier_fault() const {
    Fault fault{};
    fault.kind = partial_cluster_barrier;
    list_waits(fault);
    for (const Cluster::Member& each : cluster_.members) {
      for (const Thread& thread : each.block->threads) {
        if (thread.state != State::at_cluster_barrier || fault.pc != 0) continue;
        fault.pc = thread.pc;
        fault.block = each.block->index;
        fault.thread = thread.index;
      }
    }
    return fault;
  }

  void describe_missing_lane(Fault& fault, const Thread& thread) const {
    const Exchange& own = block_.exchanges[thread.number];
    fault.kind = inactive_lane;
    fault.pc = thread.pc;
    fault.mask = own.mask;
    fault.thread = thread.index;
    const uint32_t first = thread.number / kLanes * kLanes;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!(own.mask >> lane & 1)) continue;
      const bool exists = first + lane < block_.count;
      const Thread* other = exists ? &block_.threads[first + lane] : nullptr;
      const Exchange* its = exists ? &block_.exchanges[first + lane] : nullptr;
      const bool is_here = exists && other->state == State::in_warp;
      if (is_here && its->mask == own.mask && its->operation == own.operation) continue;
      fault.lane = lane;
      const char* why = !exists                             ? "the block has no such thread"
                        : other->state == State::done       ? "it has returned"
                        : other->state == State::at_barrier ? "it waits at a barrier of the block"
                        : other->state == State::at_cluster_barrier
                            ? "it waits at a barrier of the cluster"
                        : its->operation != own.operation   ? "it is at another operation of the warp"
                                                            : "it is here with another mask";
      std::snprintf(fault.detail, sizeof(fault.detail), "the mask names lane %u, and %s", lane, why);
      return;
    }
  }

  void list_waits(Fault& fault) const {
    for (const Cluster::Member& each : cluster_.members) list_waits(fault, *each.block);
  }

  static void list_waits(Fault& fault, const Block& block) {
    for (const Thread& thread : block.threads) {
      if (thread.state == State::done || thread.state == State::unstarted || thread.pc == 0) continue;
      int place = 0;
      while (place < fault.waits && fault.wait[place].pc != thread.pc) ++place;
      if (place == kMostWaits) continue;
      if (place == fault.waits) {
        ++fault.waits;
        fault.wait[place].pc = thread.pc;
        fault.wait[place].block = block.index;
        fault.wait[place].thread = thread.index;
      }
      ++fault.wait[place].count;
    }
  }

  Grid& grid_;
  Block& block_;
  Cluster& cluster_;
};

}  // namespace opsmith::emulator
