// The operations of a warp: its lanes wait for each other, exchange values, and find out who is with them.
#pragma once

#include <cstring>

#include "races.h"

namespace opsmith::emulator {

// Kinds of a warp's operations, by which lanes find each other.
enum WarpOperation : int { sync_warp = 0, shuffle = 1, vote = 2, match = 3, reduce = 4 };

class Warps {
 public:
  Warps(Grid& grid, Block& block, Reports& reports, Races& races)
      : checks_(grid.launch.checks != 0), block_(block), reports_(reports), races_(races) {}

  void synchronise(uint32_t mask, uintptr_t pc) { meet(mask, sync_warp, pc); }

  void shuffle_values(uint32_t mask, void* value, uint32_t bytes, int source, uintptr_t pc) {
    Exchange& own = block_.exchange();
    std::memcpy(own.value, value, bytes);
    own.bytes = bytes;
    own.source = source;
    meet(mask, shuffle, pc);
    std::memcpy(value, own.received, bytes);
  }

  void gather_values(uint32_t mask, uint64_t own, uint64_t* all, int kind, uintptr_t pc) {
    std::memcpy(block_.exchange().value, &own, sizeof(own));
    block_.exchange().gathered = all;
    meet(mask, kind, pc);
  }

  // The lanes that come to this place together: a lane waits until no other of its warp can go on, and those that have
  // come by then are together. On a GPU that depends on the compiler and the hardware; this is the most there can be.
  uint32_t active_mask(uintptr_t pc) {
    Thread& self = *block_.self;
    self.pc = pc;
    self.passes = 0;
    self.state = State::converging;
    block_.give_way();
    return static_cast<uint32_t>(self.result);
  }

  // Lets the thread go on with those of its warp that wait at the same place, unless another lane may yet come. One that
  // spins until they have gone on must not be waited for without end.
  bool converge(Thread& thread) {
    static constexpr uint32_t kMostPasses = 64;
    const uint32_t first = thread.number / kLanes * kLanes, end = std::min(first + kLanes, block_.count);
    uint32_t mask = 0;
    bool more = false;
    for (uint32_t i = first; i < end; ++i) {
      const Thread& other = block_.threads[i];
      if (other.state == State::converging && other.pc == thread.pc) mask |= 1u << (i - first);
      more = more || other.state == State::ready || other.state == State::unstarted;
    }
    if (more && ++thread.passes < kMostPasses) return false;
    for (uint32_t i = first; i < end; ++i) {
      if (!(mask >> (i - first) & 1)) continue;
      block_.threads[i].result = static_cast<int>(mask);
      block_.threads[i].state = State::ready;
    }
    return true;
  }

  // A thread has returned: those that waited for it may have all they need.
  void complete_without(uint32_t number) {
    const uint32_t first = number / kLanes * kLanes;
    for (uint32_t lane = 0; lane < kLanes && first + lane < block_.count; ++lane) {
      const Exchange& its = block_.exchanges[first + lane];
      if (block_.threads[first + lane].state == State::in_warp && its.operation != shuffle) {
        complete(first, its.mask, its.operation);
      }
    }
  }

 private:
  // Waits until all lanes of the mask have come to the same operation.
  void meet(uint32_t mask, int operation, uintptr_t pc) {
    Thread& self = *block_.self;
    const uint32_t lane = self.number % kLanes, first = self.number - lane;
    block_.exchange().mask = mask;
    block_.exchange().operation = operation;
    self.pc = pc;
    if (!(mask >> lane & 1)) reports_.fail_lane(self, "the mask does not name the calling lane itself", mask, lane, pc);
    self.state = State::in_warp;
    ++block_.in_warp;
    if (complete(first, mask, operation)) {
      reports_.stop_if_halted(pc);  // a thread that is alone in its mask may never yield
    } else {
      block_.give_way();
    }
  }

  // The lanes of a mask that are to come: those that the block has and, but for shuffles, that have not returned. A lane
  // that returns without a shuffle that names it is at fault; it may leave a barrier or a vote to the others.
  uint32_t awaited(uint32_t first, uint32_t mask, int operation) const {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const bool exists = first + lane < block_.count;
      if (!exists || (operation != shuffle && block_.threads[first + lane].state == State::done)) mask &= ~(1u << lane);
    }
    return mask;
  }

  // Carries an operation out if all have come to it, and lets them go on.
  bool complete(uint32_t first, uint32_t mask, int operation) {
    const uint32_t taking_part = awaited(first, mask, operation);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!(taking_part >> lane & 1)) continue;
      const Exchange& its = block_.exchanges[first + lane];
      const bool has_come = block_.threads[first + lane].state == State::in_warp;
      if (!has_come || its.mask != mask || its.operation != operation) return false;
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (taking_part >> lane & 1) receive(first, lane, taking_part, operation);
    }
    if (operation == sync_warp && checks_) races_.join_lanes(first, taking_part);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (taking_part >> lane & 1) block_.threads[first + lane].state = State::ready;
    }
    block_.in_warp -= __builtin_popcount(taking_part);
    return true;
  }

  void receive(uint32_t first, uint32_t lane, uint32_t taking_part, int operation) {
    Exchange& its = block_.exchanges[first + lane];
    if (operation == shuffle) {
      const uint32_t source = its.source;
      const bool there = taking_part >> source & 1;
      if (checks_ && !there) fail_source(block_.threads[first + lane], its.mask, source);
      std::memcpy(its.received, there ? block_.exchanges[first + source].value : its.value, its.bytes);
    } else if (operation != sync_warp) {
      for (uint32_t giver = 0; giver < kLanes; ++giver) {
        if (!(taking_part >> giver & 1)) continue;
        std::memcpy(&its.gathered[giver], block_.exchanges[first + giver].value, sizeof(uint64_t));
      }
    }
  }

  [[noreturn]] void fail_source(const Thread& thread, uint32_t mask, uint32_t source) {
    const bool is_named = mask >> source & 1;
    char detail[96];
    std::snprintf(detail, sizeof(detail), "it reads from lane %u, which %s", source,
                  is_named ? "the block does not have" : "the mask does not name");
    reports_.fail_lane(thread, detail, mask, source, thread.pc);
  }

  const bool checks_;
  Block& block_;
  Reports& reports_;
  Races& races_;
};

}  // namespace opsmith::emulator
