// Finds data races: accesses of a block's threads that nothing orders.
//
// Two accesses are ordered by a barrier between them; by __syncwarp, for the lanes of its mask; by a release of the
// first thread, or block, that the second has seen; and by a barrier of their cluster, which is such a release.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "reports.h"

namespace opsmith::emulator {

class Races {
 public:
  Races(Grid& grid, Block& block, Reports& reports, Cluster& cluster)
      : grid_(grid),
        block_(block),
        reports_(reports),
        cluster_(cluster),
        known_(grid.launch.checks ? size_t(block.warps) * kLanes * kLanes : 0),
        released_(grid.launch.checks ? block.count : 0) {}

  void begin_block() {
    for (const uint32_t thread : releasing_) released_[thread].clear();
    releasing_.clear();
    latest_.clear();
    releases_ = 0;
    first_release_ = 0;
    view_ = 0;
    std::fill(known_.begin(), known_.end(), 0);
  }

  // Records an access of the running thread to the bytes from `at` to `end` in the word that contains `at`. Returns
  // whether it races with another access, and that access.
  bool touch(Word& word, uintptr_t at, uintptr_t end, bool is_write, Manner how, uintptr_t pc, Access& other) {
    const Access now = described(at, end, how, pc);
    for (const Access* write : {&word.write, &word.other_write}) {
      if (conflicts(*write, true, now, is_write)) {
        other = *write;
        return true;
      }
    }
    if (is_write) {
      for (const Access* read : {&word.read, &word.other_read}) {
        if (conflicts(*read, false, now, true)) {
          other = *read;
          return true;
        }
      }
      if (word.write.bytes & ~now.bytes) {
        word.other_write = word.write;
      } else if ((word.other_write.bytes & ~now.bytes) == 0) {
        word.other_write = Access{};
      }
      word.write = now;
      if ((word.read.bytes & ~now.bytes) == 0) word.read = word.other_read = Access{};
    } else if (word.read.serial == 0 || ordered(word.read)) {
      word.read = now;
    } else {
      word.other_read = now;
    }
    return false;
  }

  // `owner` is the block of the shared memory that it is in.
  [[noreturn]] void fail(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc, const Access& other,
                         int64_t region, const Block* owner = nullptr) {
    Fault fault{};
    fault.kind = race;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = region;
    if (region >= 0) fault.offset = static_cast<int64_t>(address - grid_.memory[region].begin);
    fault.has_other = 1;
    fault.other.pc = reinterpret_cast<uintptr_t>(grid_.launch.entry) + other.pc;
    fault.other.block = grid_.index_of(other.serial - 1);
    fault.other.thread = block_.index_of(other.thread);
    const bool is_between_blocks = owner != nullptr && (other.serial != block_.serial || owner != &block_);
    if (is_between_blocks) {
      const Dim its = owner->index;
      std::snprintf(fault.detail, sizeof(fault.detail), "(%u, %u, %u)", its.x, its.y, its.z);
    }
    reports_.fail(fault);
  }

  // --- What orders ----------------------------------------------------------------------------------------------

  // An operation is recorded before it is done, and another core may release and operate in between. Therefore what it
  // sees is looked up once more when the operation is certainly over: at the thread's next step.
  void catch_up(Thread& thread) {
    if (thread.operated_at == 0) return;
    const uint64_t seen = grid_.releases.latest(thread.operated_at);
    thread.view = std::max(thread.view, seen);
    view_ = std::max(view_, seen);
    thread.operated_at = 0;
  }

  void fence(int scope) {
    Thread& self = *block_.self;
    catch_up(self);
    self.fenced_in_block = true;
    if (scope == 0) return;
    self.fenced = true;
    self.wrote = false;
  }

  // An operation by which threads learn of each other: after a fence it releases what was written before, and it sees
  // what others have released at the address. `owner` is of the block in whose shared memory that is; null elsewhere.
  void operate(uintptr_t address, Races* owner, bool is_write) {
    Thread& self = *block_.self;
    const bool to_block = is_write && self.fenced_in_block, to_device = is_write && self.fenced;
    if (to_device && cluster_.barriers > 0) release_neighbours();
    Releases::Moments moments;
    if (owner != nullptr) {
      // The shared memory of another block was at the same address: a release there was for that block.
      uint64_t& latest = owner->latest_[address];
      moments = {latest, to_block || to_device ? grid_.releases.release(block_.serial, to_device) : 0};
      latest = std::max(latest, moments.released);
    } else {
      moments = grid_.releases.operate(address, block_.serial, to_block, to_device);
      view_ = std::max(view_, moments.seen);
      self.operated_at = address;
    }
    self.view = std::max(self.view, moments.seen);
    if (moments.released == 0) return;
    if (to_device) ++releases_;
    const uint32_t first = self.number / kLanes * kLanes;
    for (uint32_t i = first; i < std::min(first + kLanes, block_.count); ++i) {
      // And what the lanes have done that this one has synchronised with.
      if (i != self.number && known(self.number, i) == 0) continue;
      release(block_.threads[i], moments.released, to_device);
    }
  }

  // The running thread arrives at a barrier of the cluster. What it has done so far is seen by all that wait there.
  void arrive(bool releases) {
    Thread& self = *block_.self;
    catch_up(self);
    cluster_.next_view = std::max(cluster_.next_view, view_);
    // An arrival that releases nothing may follow a fence, with no write in between.
    if (!releases && !(self.fenced && self.fenced_in_block)) return;
    release(self, grid_.releases.release(block_.serial, false), true);
  }

  // All have arrived.
  void complete_cluster_barrier() {
    cluster_.formerly_complete = cluster_.complete;
    cluster_.complete = grid_.releases.release(block_.serial, false);
    if (cluster_.first_complete == 0) cluster_.first_complete = cluster_.complete;
    cluster_.view = cluster_.next_view;
  }

  // The running thread has waited for it.
  void pass_cluster_barrier() {
    block_.self->view = std::max(block_.self->view, cluster_.complete);
    view_ = std::max(view_, cluster_.view);
  }

  // Whether the running thread knows that a block of its cluster has begun.
  bool knows_of(const Races& other) const {
    const uint64_t view = block_.self->view;
    return (cluster_.first_complete != 0 && cluster_.first_complete <= view) ||
           (other.first_release_ != 0 && other.first_release_ <= view);
  }

  // Whether a thread of this block has released what it did before its release of that number, as far as `view` goes.
  bool was_released(uint32_t thread, uint32_t release, uint64_t view, bool beyond_block) const {
    const Released& its = released_[thread];
    if (release < its.dropped) return true;
    for (size_t i = release - its.dropped; i < its.moments.size() && its.moments[i].moment <= view; ++i) {
      if (!beyond_block || its.moments[i].beyond_block) return true;
    }
    return false;
  }

  // After a barrier, all threads have seen what one of them has seen or fenced.
  void join_block() {
    uint64_t view = 0;
    bool fenced = false;
    for (Thread& thread : block_.threads) {
      catch_up(thread);
      view = std::max(view, thread.view);
      fenced = fenced || thread.fenced;
    }
    for (Thread& thread : block_.threads) {
      thread.view = view;
      thread.fenced = thread.fenced || (fenced && !thread.wrote);
    }
  }

  // Every lane of the mask now sees what the others have done, and what they had seen of lanes that are not in it.
  void join_lanes(uint32_t first, uint32_t mask) {
    std::vector<Thread>& threads = block_.threads;
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (mask >> a & 1) catch_up(threads[first + a]);
    }
    for (uint32_t c = 0; c < kLanes && first + c < block_.count; ++c) {
      if (mask >> c & 1) continue;
      uint32_t most = 0;
      for (uint32_t a = 0; a < kLanes; ++a) {
        if (mask >> a & 1) most = std::max(most, known(first + a, first + c));
      }
      for (uint32_t a = 0; a < kLanes; ++a) {
        if (mask >> a & 1) known(first + a, first + c) = most;
      }
    }
    uint64_t view = 0;
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (mask >> a & 1) view = std::max(view, threads[first + a].view);
    }
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (!(mask >> a & 1)) continue;
      for (uint32_t b = 0; b < kLanes; ++b) {
        if (mask >> b & 1) known(first + a, first + b) = threads[first + b].clock;
      }
    }
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (!(mask >> a & 1)) continue;
      ++threads[first + a].clock;
      threads[first + a].view = view;
    }
  }

 private:
  struct Release {
    uint64_t moment;
    bool beyond_block;
  };
  // What a thread has released, except the first releases, which every thread has seen.
  struct Released {
    uint32_t dropped = 0;
    std::vector<Release> moments;

    void clear() {
      dropped = 0;
      moments.clear();
    }
  };

  void release(Thread& thread, uint64_t moment, bool beyond_block) {
    static constexpr size_t kMany = 64;
    Released& its = released_[thread.number];
    if (its.dropped == 0 && its.moments.empty()) releasing_.push_back(thread.number);
    if (beyond_block && first_release_ == 0) first_release_ = moment;
    if (its.moments.size() >= kMany) {
      // A thread that has yet to wait at the latest barrier of the cluster has waited at the one before.
      const auto seen = [&](const Release& each) { return each.moment <= cluster_.formerly_complete; };
      const auto rest = std::find_if_not(its.moments.begin(), its.moments.end(), seen);
      its.dropped += static_cast<uint32_t>(rest - its.moments.begin());
      its.moments.erase(its.moments.begin(), rest);
    }
    its.moments.push_back({moment, beyond_block});
    ++thread.releases;
  }

  // Whoever sees a release of a block to others sees what the block has seen of its cluster, too.
  void release_neighbours() {
    for (const Cluster::Member& each : cluster_.members) {
      if (each.races == this) continue;
      grid_.releases.release(each.block->serial, true);
      ++each.races->releases_;
    }
  }

  Access described(uintptr_t at, uintptr_t end, Manner how, uintptr_t pc) const {
    const uint32_t first = at & 3, last = std::min<uintptr_t>(end - (at & ~uintptr_t{3}), 4);
    const Thread& self = *block_.self;
    Access access;
    access.pc = static_cast<int32_t>(pc - reinterpret_cast<uintptr_t>(grid_.launch.entry));
    access.serial = block_.serial;
    access.epoch = block_.epoch;
    access.clock = self.clock;
    access.releases = releases_;
    access.thread = static_cast<uint16_t>(self.number);
    access.bytes = static_cast<uint8_t>((0xfu >> (4 - last)) & (0xfu << first));
    access.own_releases = self.releases;
    access.how = how;
    return access;
  }

  // The clock of another lane of its warp, as known from the observer's synchronisations.
  uint32_t& known(uint32_t observer, uint32_t other) { return known_[size_t(observer) * kLanes + other % kLanes]; }

  bool ordered(const Access& before) {
    const Thread& self = *block_.self;
    if (before.serial != block_.serial) {
      if (cluster_.holds(before.serial)) {
        const Races& its = *cluster_.member(before.serial).races;
        if (its.was_released(before.thread, before.own_releases, self.view, true)) return true;
      }
      const uint64_t moment = grid_.releases.after(before.serial, before.releases);
      return moment != 0 && moment <= view_;
    }
    if (before.thread == self.number || before.epoch < block_.epoch) return true;
    if (was_released(before.thread, before.own_releases, self.view, false)) return true;
    return same_warp(before) && known(self.number, before.thread) >= before.clock;
  }

  bool same_warp(const Access& before) const {
    return before.serial == block_.serial && before.thread / kLanes == block_.self->number / kLanes;
  }

  // Volatile is as good as atomic between warps, but does not order the lanes of one.
  bool allowed(const Access& before, bool before_writes, const Access& now, bool now_writes) const {
    if (before.how != plain && now.how != plain) {
      return before.how != Manner::volatile_access || now.how != Manner::volatile_access || !same_warp(before);
    }
    // The loop around a compare-and-swap begins with a plain load, which may return an old value.
    return (before.how == compare_and_swap && !now_writes) || (now.how == compare_and_swap && !before_writes);
  }

  bool conflicts(const Access& before, bool before_writes, const Access& now, bool now_writes) {
    return before.serial != 0 && (before.bytes & now.bytes) && !allowed(before, before_writes, now, now_writes) &&
           !ordered(before);
  }

  Grid& grid_;
  Block& block_;
  Reports& reports_;
  Cluster& cluster_;
  std::vector<uint32_t> known_;
  std::vector<Released> released_;                   // by thread
  std::vector<uint32_t> releasing_;                  // threads that have any
  std::unordered_map<uintptr_t, uint64_t> latest_;   // moment released, by address in shared memory
  uint32_t releases_ = 0;                            // of the block to others so far
  uint64_t first_release_ = 0;                       // of the block beyond itself
  uint64_t view_ = 0;                                // the latest release that the block has seen
};

}  // namespace opsmith::emulator
