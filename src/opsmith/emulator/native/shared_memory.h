// A block's shared memory: where it ends, which bytes have been written, and by whom.
#pragma once

#include <algorithm>
#include <cstdio>
#include <vector>

#include "races.h"
#include "windows.h"

namespace opsmith::emulator {

class SharedMemory {
 public:
  SharedMemory(Grid& grid, Block& block, Reports& reports, Races& races, Cluster& cluster, void* dynamic)
      : launch_(grid.launch), block_(block), reports_(reports), races_(races), cluster_(cluster) {
    dynamic_.begin = reinterpret_cast<uintptr_t>(dynamic);
    dynamic_.end = dynamic_.begin + launch_.shared_bytes;
    if (!launch_.checks) return;
    if (launch_.shared_bytes > 0) dynamic_.note();
    if (launch_.shared_variable_count == 0) return;
    static_base_ = reinterpret_cast<uintptr_t>(launch_.shared_base());
    const StaticExtent statics(launch_);
    static_.begin = statics.begin;
    static_.end = statics.end;
    static_.note();
    static_limit_ = static_.end + Windows::kBehindStatic;
  }

  void begin_block() { suspects_.clear(); }

  void* dynamic_begin() const { return reinterpret_cast<void*>(dynamic_.begin); }

  // Whether an address is in the dynamic shared memory, or so close after it that nothing else can be meant.
  bool is_dynamic(uintptr_t address) const { return address - dynamic_.begin < launch_.shared_bytes + Windows::kRedZone; }

  // In static shared memory; behind its last variable may lie a tensor, for thread-local storage is allocated like any
  // memory.
  bool is_static(uintptr_t address, const GlobalMemory& memory) const {
    return address - static_.begin < static_limit_ - static_.begin &&
           (address < static_.end || memory.find(address) < 0);
  }

  // Or it is the end.
  bool holds_dynamic(uintptr_t address) const { return address >= dynamic_.begin && address <= dynamic_.end; }

  // Also without checks.
  bool holds(uintptr_t address) const {
    if (address != dynamic_.end && holds_dynamic(address)) return true;
    const uintptr_t base = reinterpret_cast<uintptr_t>(launch_.shared_base());
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const Region& its = launch_.shared_variables[i];
      if (its.kind == shared_variable && address - (base + its.begin) < its.end - its.begin) return true;
    }
    return false;
  }

  // `by` is the shared memory of the running block, which accesses this one's.
  void access_dynamic(
      SharedMemory& by, uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    if (address + bytes > dynamic_.end) fail_dynamic(by, address, bytes, is_write, pc);
    access(by, dynamic_, address, bytes, is_write, is_read, how, pc);
  }

  void access_static(
      SharedMemory& by, uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const Extent found = variable(i);
      if (address < found.begin || address >= found.end) continue;
      if (address + bytes > found.end) break;
      if (launch_.shared_variables[i].kind == ignored_variable) return;
      access(by, static_, address, bytes, is_write, is_read, how, pc);
      return;
    }
    fail_static(by, address, bytes, is_write, pc);
  }

  // At an address outside every region: reported as beside shared memory where nothing else is nearer.
  void fail_if_nearest(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc, uintptr_t to_other) {
    const uintptr_t to_static =
        launch_.shared_variable_count ? Extent{static_.begin, static_limit_}.distance(address) : kFar;
    const uintptr_t to_dynamic = launch_.shared_bytes ? dynamic_.distance(address) : kFar;
    if (to_static < std::min({kFar, to_dynamic, to_other})) fail_static(*this, address, bytes, is_write, pc);
    if (to_dynamic < std::min(kFar, to_other)) fail_dynamic(*this, address, bytes, is_write, pc);
  }

  // At a barrier or the end of the cluster: no thread has written what this block has read.
  void fail_if_uninitialised(Reports& reports) const {
    if (suspects_.empty()) return;
    const Suspect& first = suspects_.front();
    Fault fault{};
    fault.kind = uninitialised;
    fault.pc = first.pc;
    fault.address = first.address;
    fault.size = first.bytes;
    fault.region = -1;
    reports.fail_of(block_, first.thread, fault);
  }

 private:
  static constexpr uintptr_t kFar = 1 << 20;

  struct Extent {
    uintptr_t begin = 1, end = 1;

    uintptr_t distance(uintptr_t address) const {
      return address < begin ? begin - address : address < end ? 0 : address - end;
    }
  };

  struct Noted : Extent {
    Words words;
    Shadow shadow;
    std::vector<uint32_t> written;  // by which block, for each byte

    void note() {
      words = Words(Shadow::count(begin, end));
      shadow = Shadow(begin, words.get());
      written.assign(end - begin, 0);
    }
  };

  // A read, by this block, of shared memory that no thread had written.
  struct Suspect {
    uintptr_t address;
    uint32_t bytes;
    uintptr_t pc;
    Dim thread;
  };

  Extent variable(size_t i) const {
    return {static_base_ + launch_.shared_variables[i].begin, static_base_ + launch_.shared_variables[i].end};
  }

  void access(SharedMemory& by, Noted& memory, uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how,
              uintptr_t pc) {
    const uint32_t serial = block_.serial, first_of_cluster = cluster_.first_serial, blocks = cluster_.size;
    if (is_write) by.block_.self->fenced_in_block = false;
    for (uintptr_t at = address; at < address + bytes; ++at) {
      uint32_t& written = memory.written[at - memory.begin];
      // Or will another thread write it before the next barrier? Then it is a race, and reported as one.
      if (is_read && written != serial) by.suspects_.push_back({address, bytes, pc, by.block_.self->index});
      written = serial;
    }
    for (uintptr_t at = address; at < address + bytes; at = (at | 3) + 1) {
      Word& word = memory.shadow.at(at);
      for (Access* each : {&word.write, &word.other_write, &word.read, &word.other_read}) {
        // Another cluster's shared memory lay here.
        if (each->serial - first_of_cluster >= blocks) *each = Access{};
      }
      Access other;
      if (by.races_.touch(word, at, address + bytes, is_write, how, pc, other)) {
        by.races_.fail(at, bytes, is_write, pc, other, -1, &block_);
      }
    }
  }

  [[noreturn]] void fail_dynamic(SharedMemory& by, uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    Fault fault = out_of_bounds_at(by, address, bytes, is_write, pc);
    fault.region = -1;
    fault.offset = static_cast<int64_t>(address - dynamic_.begin);
    std::snprintf(fault.detail, sizeof(fault.detail), "%llu", static_cast<unsigned long long>(launch_.shared_bytes));
    by.reports_.fail(fault);
  }

  // Described by the variable that ends nearest before the address, else the one that begins nearest.
  [[noreturn]] void fail_static(SharedMemory& by, uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    Fault fault = out_of_bounds_at(by, address, bytes, is_write, pc);
    fault.region = -2;
    uintptr_t least = ~uintptr_t{0};
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const Extent its = variable(i);
      const uintptr_t away = its.distance(address);
      if (away >= least) continue;
      least = away;
      fault.region = -3 - static_cast<int64_t>(i);
      fault.offset = static_cast<int64_t>(address - its.begin);
    }
    by.reports_.fail(fault);
  }

  Fault out_of_bounds_at(
      const SharedMemory& by, uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) const {
    Fault fault{};
    fault.kind = shared_out_of_bounds;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.has_other = &by != this;
    fault.other.block = block_.index;
    return fault;
  }

  const Launch& launch_;
  Block& block_;
  Reports& reports_;
  Races& races_;
  Cluster& cluster_;
  Noted dynamic_, static_;
  uintptr_t static_base_ = 0;
  uintptr_t static_limit_ = 1;  // bytes between it and the last variable's end are unused, and likely to be hit
  std::vector<Suspect> suspects_;
};

}  // namespace opsmith::emulator
