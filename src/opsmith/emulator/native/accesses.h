// What a checked kernel does to memory: each access is held against what lies at its address.
#pragma once

#include "neighbours.h"

namespace opsmith::emulator {

class Accesses {
 public:
  Accesses(Grid& grid, Block& block, Reports& reports, Races& races, SharedMemory& shared, Neighbours& neighbours)
      : grid_(grid), block_(block), reports_(reports), races_(races), shared_(shared), neighbours_(neighbours) {}

  // A load or a store that instrumented code is about to do.
  void access(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    access(address, bytes, is_write, !is_write, plain, pc);
  }

  // `kind` as in opsmith_atomic_access.
  void atomic_access(uintptr_t address, uint32_t bytes, int kind, uintptr_t pc) {
    if (!grid_.launch.checks) {
      if ((++accesses_ & 0x3f) == 0) yield(pc);
      return;
    }
    if (address % bytes != 0) fail(misaligned, address, bytes, kind != 1, pc);
    synchronising_access(address, bytes, kind != 1, kind != 3, kind == 2 ? compare_and_swap : atomic_operation, pc);
  }

  // Code for GPUs waits for flags that are volatile, and sets them after a fence.
  void volatile_access(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    if (block_.self->fiber->holds(address)) return;
    synchronising_access(address, bytes, is_write, !is_write, Manner::volatile_access, pc);
  }

  // Lets other threads run, because the running one may wait for them.
  void yield(uintptr_t pc) {
    block_.self->pc = pc;
    reports_.stop_if_halted(pc);
    block_.give_way();
  }

  void free(uintptr_t address, uintptr_t pc) {
    const Heap::Freed freed = Heap::instance().free(address, pc);
    if (freed == Heap::Freed::now) return grid_.memory.retire(address);
    const auto found = Heap::instance().find(address);
    if (freed == Heap::Freed::before && found) fail_allocated(bad_free, *found, address, 0, true, pc);
    fail(bad_free, address, 0, true, pc);
  }

  // At global memory: reported for the given region, or for the nearest one.
  [[noreturn]] void fail(
      FaultKind kind, uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc, int64_t region = -1) {
    if (region >= 0 && grid_.memory[region].kind == allocated_memory) {
      if (const auto found = Heap::instance().find(address)) fail_allocated(kind, *found, address, bytes, is_write, pc);
    }
    Fault fault{};
    fault.kind = kind;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = region >= 0 ? region : grid_.memory.nearest(address);
    if (fault.region >= 0) fault.offset = static_cast<int64_t>(address - grid_.memory[fault.region].begin);
    reports_.fail(fault);
  }

 private:
  void access(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    if (block_.self->fiber->holds(address)) return;
    // Not on a thread's own stack: such accesses are in atomics too, where no line is the author's.
    if ((++accesses_ & 0xfff) == 0) reports_.stop_if_halted(pc);
    races_.catch_up(*block_.self);
    if (shared_.is_dynamic(address)) return shared_.access_dynamic(shared_, address, bytes, is_write, is_read, how, pc);
    if (shared_.is_static(address, grid_.memory)) {
      return shared_.access_static(shared_, address, bytes, is_write, is_read, how, pc);
    }
    if (neighbours_.access(address, bytes, is_write, is_read, how, pc)) return;
    access_global(address, bytes, is_write, how, pc);
  }

  void access_global(uintptr_t address, uint32_t bytes, bool is_write, Manner how, uintptr_t pc) {
    GlobalMemory& memory = grid_.memory;
    int64_t region = last_region_;
    if (region < 0 || address < memory[region].begin || address >= memory[region].end) {
      region = memory.find(address);
      if (region < 0) region = find_allocated(address, bytes, is_write, pc);
      last_region_ = region;
    }
    if (address + bytes > memory[region].end) fail(out_of_bounds, address, bytes, is_write, pc, region);
    if (is_write) {
      if (memory[region].kind == constant_variable) fail(write_to_constant, address, bytes, true, pc, region);
      block_.self->fenced = block_.self->fenced_in_block = false;
      block_.self->wrote = true;
    } else if (memory[region].kind == constant_variable) {
      return;
    }
    for (uintptr_t at = address; at < address + bytes; at = (at | 3) + 1) {
      Access other;
      bool found;
      {
        GlobalMemory::Lock lock(memory, at);
        found = races_.touch(memory.word(region, at), at, address + bytes, is_write, how, pc, other);
      }
      if (found) races_.fail(at, bytes, is_write, pc, other, region);
    }
  }

  void synchronising_access(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    if ((++atomics_ & 0x3f) == 0) yield(pc);  // before: what is noted must be done before another thread runs
    Thread& self = *block_.self;
    const bool fenced = self.fenced, fenced_in_block = self.fenced_in_block, wrote = self.wrote;
    access(address, bytes, is_write, is_read, how, pc);
    self.fenced = fenced;  // a fence does not have to follow this write
    self.fenced_in_block = fenced_in_block;
    self.wrote = wrote;
    const bool is_own = shared_.is_dynamic(address) || shared_.is_static(address, grid_.memory);
    Races* const owner = is_own ? &races_ : neighbours_.owner_of(address);
    races_.operate(address, owner, is_write);
  }

  // What a kernel has allocated, in this launch or in an earlier one.
  int64_t find_allocated(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    const auto found = Heap::instance().find(address);
    if (!found) fail_nowhere(address, bytes, is_write, pc);
    if (found->freed_at != 0) fail_allocated(use_after_free, *found, address, bytes, is_write, pc);
    if (!found->holds(address)) fail_allocated(out_of_bounds, *found, address, bytes, is_write, pc);
    return grid_.memory.adopt(*found);
  }

  [[noreturn]] void fail_allocated(
      FaultKind kind, const Allocation& allocation, uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    Fault fault{};
    fault.kind = kind;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = kAllocated;
    fault.offset = static_cast<int64_t>(address - allocation.begin);
    fault.has_other = 1;
    fault.other.pc = allocation.freed_at != 0 ? allocation.freed_at : allocation.pc;
    std::snprintf(fault.detail, sizeof(fault.detail), "%llu",
                  static_cast<unsigned long long>(allocation.end - allocation.begin));
    reports_.fail(fault);
  }

  // At an address outside every region.
  [[noreturn]] void fail_nowhere(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    static constexpr uintptr_t kNull = 4096;
    if (address < kNull) fail(null_pointer, address, bytes, is_write, pc);
    neighbours_.fail_if_nowhere(address, bytes, is_write, pc);
    const int64_t region = grid_.memory.nearest(address);
    const uintptr_t to_region = region < 0 ? ~uintptr_t{0} : grid_.memory.distance(region, address);
    shared_.fail_if_nearest(address, bytes, is_write, pc, to_region);
    fail(out_of_bounds, address, bytes, is_write, pc);
  }

  Grid& grid_;
  Block& block_;
  Reports& reports_;
  Races& races_;
  SharedMemory& shared_;
  Neighbours& neighbours_;
  uint64_t accesses_ = 0, atomics_ = 0;
  int64_t last_region_ = -1;
};

}  // namespace opsmith::emulator
