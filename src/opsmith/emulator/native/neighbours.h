// Accesses of a block to the shared memory of the other blocks of its cluster, which must have started, and must not
// end before the access.
#pragma once

#include <vector>

#include "shared_memory.h"

namespace opsmith::emulator {

class Neighbours {
 public:
  // `windows` is null for a block that is alone in its cluster.
  Neighbours(Block& block, Reports& reports, Races& races, SharedMemory& shared, Cluster& cluster, uint32_t rank,
             const Windows* windows)
      : block_(block),
        reports_(reports),
        races_(races),
        shared_(shared),
        cluster_(cluster),
        rank_(rank),
        windows_(windows),
        visits_(cluster.members.size()) {}

  void begin_block() {
    for (std::vector<Visit>& each : visits_) each.clear();
  }

  // An access by the running thread. False where the address is not in the shared memory of a cluster.
  bool access(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    return windows_ != nullptr && access_window(address, bytes, is_write, is_read, how, pc);
  }

  // The block whose shared memory contains an address that `access` accepted, and the address within that block.
  Races* owner_of(uintptr_t& address) const {
    Windows::Place place;
    if (windows_ == nullptr || !windows_->find(address, place)) return nullptr;
    address = place.address;
    return cluster_.members[place.rank].races;
  }

  // The address, in the block of that rank, of the variable at an address of this block or of another one.
  uintptr_t map(uintptr_t address, uint32_t rank, uintptr_t pc) {
    Windows::Place place;
    if (!find(address, place)) {
      Fault fault{};
      fault.kind = absent_block;
      fault.pc = pc;
      fault.mask = static_cast<uint32_t>(Absence::not_shared);
      reports_.fail(fault);
    }
    if (rank >= cluster_.size) return kNowhere | uintptr_t{rank & 0xffff} << 32;
    return rank == rank_ ? own(place) : windows_->in_window(rank, place);
  }

  // The rank of the block whose shared memory contains an address, or ~0.
  uint32_t rank_of(uintptr_t address) const {
    Windows::Place place;
    return find(address, place) ? place.rank : ~0u;
  }

  // A fault at an address outside all memory, which mapping a rank that does not exist returns.
  void fail_if_nowhere(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    if (address >> 48 != kNowhere >> 48) return;
    Fault fault{};
    fault.kind = absent_block;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.size = bytes;
    fault.mask = static_cast<uint32_t>(Absence::no_such_rank);
    std::snprintf(fault.detail, sizeof(fault.detail), "rank %d in a cluster of %u",
                  static_cast<int16_t>(address >> 32), cluster_.size);
    reports_.fail(fault);
  }

  // All threads of the block have ended. One of them must have waited for every access of other blocks to its shared
  // memory.
  void end_block() {
    uint32_t waits = 0;
    uint64_t view = 0;
    for (const Meeting& each : block_.meetings) waits = std::max(waits, each.waits);
    for (const Thread& each : block_.threads) view = std::max(view, each.view);
    for (uint32_t rank = 0; rank < visits_.size(); ++rank) {
      for (uint32_t i = 0; i < visits_[rank].size(); ++i) {
        const Visit& last = visits_[rank][i];
        const Cluster::Member& visitor = cluster_.members[rank];
        if (last.how.pc == 0 || last.arrivals < waits) continue;
        if (visitor.races->was_released(i, last.releases, view, true)) continue;
        fail_absent(block_.index, Absence::may_have_ended, last.how, *visitor.block, visitor.block->index_of(i));
      }
    }
  }

 private:
  // The address for a rank that does not exist: no process has memory there.
  static constexpr uintptr_t kNowhere = uintptr_t{0x00f0} << 48;

  // In a fault's mask.
  enum class Absence : uint32_t { no_such_rank = 0, not_begun = 1, ended = 2, may_have_ended = 3, not_shared = 4 };

  struct How {
    uint32_t bytes;
    bool is_write;
    uintptr_t pc = 0;
  };

  // The latest access of a thread to this block's shared memory.
  struct Visit {
    How how;
    uint32_t arrivals, releases;  // of the thread so far
  };

  bool access_window(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    Windows::Place place;
    if (!windows_->find(address, place)) return false;
    if (place.rank == rank_) {
      if (!place.is_static) {
        shared_.access_dynamic(shared_, address, bytes, is_write, is_read, how, pc);
        return true;
      }
      reports_.fail(no_resources, pc,
                    "it accesses its own shared memory at an address that another block got from map_shared_rank, "
                    "which opsmith's emulator does not support. Pass ranks between blocks, not addresses");
    }
    const Cluster::Member& owner = cluster_.members[place.rank];
    if (owner.block->done == owner.block->count) {
      fail_absent(owner.block->index, Absence::ended, {bytes, is_write, pc}, block_, block_.self->index);
    }
    if (!races_.knows_of(*owner.races)) {
      fail_absent(owner.block->index, Absence::not_begun, {bytes, is_write, pc}, block_, block_.self->index);
    }
    owner.neighbours->note(*this, {bytes, is_write, pc});
    if (place.is_static) {
      owner.shared->access_static(shared_, place.address, bytes, is_write, is_read, how, pc);
    } else {
      owner.shared->access_dynamic(shared_, place.address, bytes, is_write, is_read, how, pc);
    }
    return true;
  }

  void note(const Neighbours& by, const How& how) {
    std::vector<Visit>& visits = visits_[by.rank_];
    if (visits.empty()) visits.resize(block_.count);
    const Thread& thread = *by.block_.self;
    visits[thread.number] = {how, by.block_.arrivals(thread.number), thread.releases};
  }

  bool find(uintptr_t address, Windows::Place& place) const {
    if (windows_ != nullptr && windows_->find(address, place)) return true;
    place = {rank_, !shared_.holds_dynamic(address), address};
    return !place.is_static || shared_.holds(address) || shared_.holds(address - 1);
  }

  uintptr_t own(const Windows::Place& place) const {
    return place.is_static || place.rank == rank_ ? place.address : windows_->in_window(rank_, place);
  }

  [[noreturn]] void fail_absent(Dim owner, Absence absence, const How& how, const Block& block, Dim thread) {
    Fault fault{};
    fault.kind = absent_block;
    fault.is_write = how.is_write;
    fault.pc = how.pc;
    fault.size = how.bytes;
    fault.mask = static_cast<uint32_t>(absence);
    fault.has_other = 1;
    fault.other.block = owner;
    reports_.fail_of(block, thread, fault);
  }

  Block& block_;
  Reports& reports_;
  Races& races_;
  SharedMemory& shared_;
  Cluster& cluster_;
  const uint32_t rank_;
  const Windows* const windows_;
  std::vector<std::vector<Visit>> visits_;  // to this block: by the rank of the other, and its thread
};

}  // namespace opsmith::emulator
