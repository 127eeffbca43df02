// The barrier of a cluster, which has two steps: a thread arrives, and later waits until all threads have arrived.
#pragma once

#include "neighbours.h"

namespace opsmith::emulator {

class ClusterBarrier {
 public:
  ClusterBarrier(Grid& grid, Block& block, Reports& reports, Races& races, Cluster& cluster)
      : checks_(grid.launch.checks != 0), block_(block), reports_(reports), races_(races), cluster_(cluster) {}

  void arrive(bool releases, uintptr_t pc) {
    Meeting& own = block_.meeting();
    block_.self->pc = own.pc = pc;
    if (own.arrivals != own.waits) fail("it arrives again without having waited since", pc);
    ++own.arrivals;
    ++cluster_.arrived;
    if (checks_) races_.arrive(releases);
    complete_if_all();
  }

  void wait(uintptr_t pc) {
    Meeting& own = block_.meeting();
    block_.self->pc = pc;
    if (own.arrivals == own.waits) fail("it waits without having arrived", pc);
    if (own.waits == cluster_.barriers) complete_if_all();
    if (own.waits == cluster_.barriers) {
      block_.self->state = State::at_cluster_barrier;
      ++cluster_.waiting;
      if (checks_ && cluster_.absent() > 0) reports_.fail_cluster_barrier();
      block_.give_way();
    } else {
      reports_.stop_if_halted(pc);  // a thread that is alone in its cluster may never yield
    }
    ++own.waits;
    if (checks_) races_.pass_cluster_barrier();
  }

  // The running thread has returned.
  void end_thread() {
    if (cluster_.waiting == 0 || block_.arrivals(block_.self->number) > cluster_.barriers) return;
    if (checks_) reports_.fail_cluster_barrier();
    complete_if_all();
  }

 private:
  void complete_if_all() {
    if (cluster_.arrived < cluster_.threads()) {
      // A GPU does not wait for threads that have returned. With checks this is a fault.
      if (checks_ || cluster_.arrived + cluster_.absent() < cluster_.threads()) return;
    }
    if (checks_) {
      for (const Cluster::Member& each : cluster_.members) each.shared->fail_if_uninitialised(reports_);
      races_.complete_cluster_barrier();
    }
    for (const Cluster::Member& each : cluster_.members) {
      if (each.block->meetings.empty()) continue;
      for (Thread& thread : each.block->threads) {
        if (thread.state == State::at_cluster_barrier) thread.state = State::ready;
      }
    }
    ++cluster_.barriers;
    cluster_.arrived = cluster_.waiting = 0;
  }

  [[noreturn]] void fail(const char* detail, uintptr_t pc) {
    Fault fault{};
    fault.kind = partial_cluster_barrier;
    fault.pc = pc;
    std::snprintf(fault.detail, sizeof(fault.detail), "%s", detail);
    reports_.fail(fault);
  }

  const bool checks_;
  Block& block_;
  Reports& reports_;
  Races& races_;
  Cluster& cluster_;
};

}  // namespace opsmith::emulator
