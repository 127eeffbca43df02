// One block at a time of those that a thread of the machine runs, and what serves the calls of its threads.
#pragma once

#include <chrono>
#include <cstdarg>
#include <string>

#include "accesses.h"
#include "schedule.h"

namespace opsmith::emulator {

// What a thread of the machine keeps from one launch to the next.
class Workplace {
  Mapping shared_;

 public:
  Workplace() : dynamic_shared(shared_.reserve(Windows::kDynamicBytes + Windows::kRedZone)) {}

  // Between two launches: the next one reuses the memory of the stacks, which is not kept forever.
  void tidy() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_tidying_) return;
    next_tidying_ = now + std::chrono::seconds(1);
    fibers.give_memory_back();
  }

  // It never moves: a kernel that declares dynamic shared memory at file scope keeps its address in a variable of the
  // machine's thread.
  void* const dynamic_shared;
  Mapping windows;  // of the blocks of a cluster
  Fibers fibers;

 private:
  std::chrono::steady_clock::time_point next_tidying_{};
};

class Worker {
 public:
  // `windows` and `rank` are those of a cluster; null for a block that is one by itself.
  Worker(Grid& grid, Fibers& fibers, void* dynamic_shared, Cluster& cluster, uint32_t rank, const Windows* windows)
      : grid_(grid),
        block_(grid.launch),
        reports_(grid, block_, cluster),
        races_(grid, block_, reports_, cluster),
        shared_(grid, block_, reports_, races_, cluster, dynamic_shared),
        neighbours_(block_, reports_, races_, shared_, cluster, rank, windows),
        accesses_(grid, block_, reports_, races_, shared_, neighbours_),
        warps_(grid, block_, reports_, races_),
        cluster_barrier_(grid, block_, reports_, races_, cluster),
        schedule_(grid, block_, fibers, reports_, races_, shared_, neighbours_, cluster, cluster_barrier_, warps_,
                  &Worker::enter) {}

  Schedule& schedule() { return schedule_; }
  Cluster::Member member() { return {&block_, &races_, &shared_, &neighbours_}; }

  // Of the machine's thread; null in one that runs no kernels.
  static inline constinit thread_local Worker* current = nullptr;

  const Grid& grid() const { return grid_; }

  // --- What kernels ask for -------------------------------------------------------------------------------------

  Dim thread_index() const { return block_.self->index; }
  Dim block_index() const { return block_.index; }
  const Launch& launch() const { return grid_.launch; }
  void* dynamic_shared() const { return shared_.dynamic_begin(); }

  int barrier(int kind, int predicate, int line, uintptr_t pc) { return schedule_.barrier(kind, predicate, line, pc); }
  Warps& warp() { return warps_; }
  ClusterBarrier& cluster_barrier() { return cluster_barrier_; }
  Neighbours& neighbours() { return neighbours_; }
  void fence(int scope) { races_.fence(scope); }
  void yield(uintptr_t pc) { accesses_.yield(pc); }

  Space space(uintptr_t address) const {
    if (block_.self->fiber->holds(address)) return Space::local;
    if (shared_.holds(address)) return Space::shared;
    if (neighbours_.rank_of(address) != ~0u) return Space::cluster;
    const int64_t region = grid_.memory.find(address);
    return region >= 0 && grid_.memory[region].kind == constant_variable ? Space::constant : Space::global;
  }

  void free(uintptr_t address, uintptr_t pc) { accesses_.free(address, pc); }

  int print(const char* format, va_list values, uintptr_t pc) {
    char some[512];
    va_list again;
    va_copy(again, values);
    const int length = std::vsnprintf(some, sizeof(some), format, values);
    std::string all;
    if (length >= static_cast<int>(sizeof(some))) {
      all.resize(length + 1);
      std::vsnprintf(all.data(), all.size(), format, again);
    }
    va_end(again);
    if (length > 0) {
      while (!grid_.printed.write(all.empty() ? some : all.data(), length)) reports_.stop_if_halted(pc);
    }
    reports_.stop_if_halted(pc);
    return length;
  }

  // --- What instrumented code calls before each access ----------------------------------------------------------

  void access(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    accesses_.access(address, bytes, is_write, pc);
  }
  void atomic_access(uintptr_t address, uint32_t bytes, int kind, uintptr_t pc) {
    accesses_.atomic_access(address, bytes, kind, pc);
  }
  void volatile_access(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    accesses_.volatile_access(address, bytes, is_write, pc);
  }
  [[noreturn]] void fail_misaligned(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    accesses_.fail(misaligned, address, bytes, is_write, pc);
  }

  // --- What goes wrong ------------------------------------------------------------------------------------------

  bool running_a_thread() const { return block_.self != nullptr; }
  bool on_stack_of_thread(uintptr_t pointer) const { return running_a_thread() && block_.self->fiber->holds(pointer); }
  bool at_end_of_stack(uintptr_t address) const { return running_a_thread() && block_.self->fiber->guards(address); }

  [[noreturn]] void fail(const Fault& fault) { reports_.fail(fault); }
  [[noreturn]] void fail(FaultKind kind, uintptr_t pc, const char* detail = "") { reports_.fail(kind, pc, detail); }
  void stop_if_halted(uintptr_t pc) { reports_.stop_if_halted(pc); }

 private:
  static void enter() { current->schedule_.run_threads(); }

  Grid& grid_;
  Block block_;
  Reports reports_;
  Races races_;
  SharedMemory shared_;
  Neighbours neighbours_;
  Accesses accesses_;
  Warps warps_;
  ClusterBarrier cluster_barrier_;
  Schedule schedule_;
};

}  // namespace opsmith::emulator
