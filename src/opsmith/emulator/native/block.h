// One block at a time on one core: its threads as fibers, its barriers, its warps' operations, its shared memory.
#pragma once

#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "fibers.h"
#include "memory.h"

namespace opsmith::emulator {

constexpr int kLanes = 32;

enum class State : uint8_t { unstarted, ready, at_barrier, in_warp, converging, done };

// What a thread gives to, and gets from, an operation of its warp.
struct Exchange {
  uint32_t mask;
  int operation;
  int source;
  uint32_t bytes;
  alignas(16) unsigned char value[16];
  alignas(16) unsigned char received[16];
  uint64_t* gathered;
};

// A stack. A thread that ends leaves it to the next one to start, so a block without barriers needs one.
struct Fiber {
  Context context;
  char* low;
};

struct Thread {
  State state;
  bool fenced;  // has it fenced since it last wrote?
  uint32_t number;
  int result;      // of a barrier; the mask of a convergence
  uint32_t passes;  // of the scheduler, while converging
  uint32_t clock;  // synchronisations of its warp so far
  Dim index;
  uintptr_t pc;  // where it waits
  Fiber* fiber;
};

// kinds of a warp's operations, by which lanes find each other
enum WarpOperation : int { sync_warp = 0, shuffle = 1, vote = 2, match = 3, reduce = 4 };

// What all workers of a launch share.
struct Shared {
  explicit Shared(const Launch& launch)
      : launch(launch),
        memory(launch.regions, launch.region_count, launch.checks != 0),
        blocks(uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z),
        releases(launch.checks != 0 ? blocks : 0) {}

  const Launch& launch;
  GlobalMemory memory;
  uint64_t blocks;
  Releases releases;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stopped{false};
  std::atomic<bool> late{false};
  std::mutex fault_mutex;

  void report(const Fault& fault) {
    const std::lock_guard<std::mutex> lock(fault_mutex);
    if (!stopped.exchange(true)) *launch.fault = fault;
  }
};

class Worker {
 public:
  explicit Worker(Shared& shared) : shared_(shared), launch_(shared.launch) {
    count_ = launch_.block.x * launch_.block.y * launch_.block.z;
    threads_.resize(count_);
    exchanges_.resize(count_);
    stacks_.reserve(count_);
    fibers_.resize(count_);
    for (uint32_t i = 0; i < count_; ++i) fibers_[i].low = stacks_.low(i);
    warps_ = (count_ + kLanes - 1) / kLanes;
    // Behind the dynamic shared memory lies more that is nobody's.
    dynamic_.resize(launch_.shared_bytes + kRedZone + 16);
    dynamic_begin_ = (reinterpret_cast<uintptr_t>(dynamic_.data()) + 15) & ~uintptr_t{15};
    order_.resize(count_);
    for (uint32_t i = 0; i < count_; ++i) order_[i] = i;
    known_.resize(launch_.checks ? size_t(warps_) * kLanes * kLanes : 0);
  }

  // Blocks, until there are none or a fault has been found.
  void run() {
    current = this;
    if (launch_.checks) find_shared_memory();
    std::mt19937_64 random(launch_.seed);
    const uint64_t rotation = shared_.blocks ? random() % shared_.blocks : 0;
    const bool backwards = random() & 1;
    for (;;) {
      const uint64_t taken = shared_.next.fetch_add(1);
      if (taken >= shared_.blocks || shared_.stopped) break;
      uint64_t block = (taken + rotation) % shared_.blocks;
      if (backwards) block = shared_.blocks - 1 - block;
      run_block(block);
    }
    current = nullptr;
  }

  static thread_local Worker* current;

  // --- What kernels ask for -------------------------------------------------------------------------------------

  Dim thread_index() const { return self_->index; }
  Dim block_index() const { return block_; }
  const Launch& launch() const { return launch_; }
  void* dynamic_shared() const { return reinterpret_cast<void*>(dynamic_begin_); }

  int barrier(int kind, int predicate, uintptr_t pc) {
    Thread& self = *self_;
    self.pc = pc;
    if (at_barrier_ == 0) {
      barrier_sum_ = kind == 1 ? 1 : 0;
      barrier_pc_ = pc;
    }
    barrier_sum_ = kind == 1 ? barrier_sum_ & (predicate != 0) : barrier_sum_ + (predicate != 0);
    ++at_barrier_;
    if (launch_.checks && done_ > 0) fail_partial_barrier();
    if (at_barrier_ == count_ - done_) {
      complete_barrier(kind);
      return self.result;
    }
    self.state = State::at_barrier;
    give_way();
    return self.result;
  }

  void shuffle_values(uint32_t mask, void* value, uint32_t bytes, int source, int kind, uintptr_t pc) {
    Exchange& own = exchange();
    std::memcpy(own.value, value, bytes);
    own.bytes = bytes;
    own.source = source;
    meet(mask, shuffle, pc);
    std::memcpy(value, own.received, bytes);
  }

  void gather_values(uint32_t mask, uint64_t own, uint64_t* all, int kind, uintptr_t pc) {
    std::memcpy(exchange().value, &own, sizeof(own));
    exchange().gathered = all;
    meet(mask, kind, pc);
  }

  void synchronise_warp(uint32_t mask, uintptr_t pc) { meet(mask, sync_warp, pc); }

  // The lanes that come to this place together: a lane waits until no other of its warp can go on, and those that have
  // come by then are together. On a GPU that depends on the compiler and the hardware; this is the most there can be.
  uint32_t active_mask(uintptr_t pc) {
    self_->pc = pc;
    self_->passes = 0;
    self_->state = State::converging;
    give_way();
    return static_cast<uint32_t>(self_->result);
  }

  void yield() {
    check_time(0);
    give_way();
  }

  // --- What instrumented code calls before each access ----------------------------------------------------------

  void access(uintptr_t address, uint32_t bytes, bool is_write, bool is_atomic, uintptr_t pc) {
    if ((++accesses_ & 0xfff) == 0) check_time(pc);
    Thread& self = *self_;
    if (address - reinterpret_cast<uintptr_t>(self.fiber->low) < Stacks::kBytes) return;
    if (address - dynamic_begin_ < launch_.shared_bytes + kRedZone) {
      if (address + bytes > dynamic_begin_ + launch_.shared_bytes) {
        fail_memory(shared_out_of_bounds, address, bytes, is_write, pc, -1);
      }
      shared_access(address, bytes, is_write, is_atomic, pc, dynamic_shadow_, dynamic_written_, dynamic_begin_);
      return;
    }
    // What lies behind the last variable may be a tensor: thread-local storage is allocated like any memory.
    if (address - static_begin_ < static_end_ - static_begin_ &&
        (address < static_end_ - kBehindStatic || shared_.memory.find(address) < 0)) {
      static_access(address, bytes, is_write, is_atomic, pc);
      return;
    }
    int64_t region = last_region_;
    GlobalMemory& memory = shared_.memory;
    if (region < 0 || address < memory[region].begin || address >= memory[region].end) {
      region = memory.find(address);
      if (region < 0) fail_memory(address < 4096 ? null_pointer : out_of_bounds, address, bytes, is_write, pc, -1);
      last_region_ = region;
    }
    if (address + bytes > memory[region].end) fail_memory(out_of_bounds, address, bytes, is_write, pc, region);
    if (is_write) {
      if (memory[region].kind == constant_variable) fail_memory(write_to_constant, address, bytes, true, pc, region);
      self.fenced = false;
    } else if (memory[region].kind == constant_variable) {
      return;
    }
    for (uintptr_t at = address; at < address + bytes; at = (at | 3) + 1) {
      Word* const word = memory.word(region, at);
      if (word == nullptr) return;
      Access other;
      bool found;
      {
        GlobalMemory::Lock lock(memory, at);
        found = touch(*word, touched(at, address + bytes, is_atomic, pc), is_write, other);
      }
      if (found) fail_race(at, bytes, is_write, pc, other, region);
    }
  }

  void atomic_access(uintptr_t address, uint32_t bytes, bool only_reads, uintptr_t pc) {
    if (!launch_.checks) {
      if ((++accesses_ & 0x3f) == 0) yield();
      return;
    }
    if (address % bytes != 0) fail_memory(misaligned, address, bytes, !only_reads, pc, -1);
    const bool fenced = self_->fenced;
    access(address, bytes, !only_reads, true, pc);
    self_->fenced = fenced;  // an atomic operation is no write that a fence must follow
    const uint64_t seen = shared_.releases.operate(address, serial_, fenced && !only_reads);
    if (seen > view_) view_ = seen;
    if ((++atomics_ & 0x3f) == 0) yield();
  }

  void fence(int scope) {
    if (scope > 0) self_->fenced = true;
  }

  [[noreturn]] void fail(Fault fault) {
    fault.block = block_;
    if (self_ != nullptr) fault.thread = self_->index;
    shared_.report(fault);
    leave();
  }

  [[noreturn]] void fail_memory(FaultKind kind, uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc, int64_t region) {
    Fault fault{};
    fault.kind = kind;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = region >= 0 ? region : kind == shared_out_of_bounds ? -1 : shared_.memory.nearest(address);
    if (kind == shared_out_of_bounds) {
      fault.offset = static_cast<int64_t>(address - dynamic_begin_);
    } else if (fault.region >= 0) {
      fault.offset = static_cast<int64_t>(address - shared_.memory[fault.region].begin);
    }
    fail(fault);
  }

  bool running_a_thread() const { return self_ != nullptr; }
  uintptr_t waiting_pc() const { return self_ == nullptr ? 0 : self_->pc; }

  // Gives the stack up and goes back to the scheduler, which stops.
  [[noreturn]] void leave() {
    self_->fiber->context.switch_to(scheduler_);
    __builtin_unreachable();
  }

  void check_time(uintptr_t pc) {
    if (shared_.late.load(std::memory_order_relaxed)) fail_hang(pc);
    if (shared_.stopped.load(std::memory_order_relaxed)) leave();
  }

  [[noreturn]] void fail_hang(uintptr_t pc) {
    Fault fault{};
    fault.kind = hang;
    fault.pc = pc;
    list_waits(fault);
    fail(fault);
  }

 private:
  static constexpr uintptr_t kRedZone = 4096, kBehindStatic = 256;

  // A fiber's life: the thread it was made for, then as many more as have not started.
  static void enter() {
    Worker& worker = *current;
    for (;;) {
      worker.launch_.entry(worker.launch_.arguments);
      Fiber* const fiber = worker.self_->fiber;
      worker.end_thread();
      Thread* const next = worker.next_to_start();
      if (next == nullptr) {
        worker.free_.push_back(fiber);
        fiber->context.switch_to(worker.scheduler_);
        // Unreachable: a fiber that is taken again begins anew.
      }
      next->fiber = fiber;
      worker.start(*next);
    }
  }

  Thread* next_to_start() {
    if (position_ == count_ || shared_.stopped.load(std::memory_order_relaxed)) return nullptr;
    return &threads_[order_[position_++]];
  }

  void start(Thread& thread) {
    const uint32_t x = launch_.block.x, y = launch_.block.y, i = thread.number;
    thread.index = y == 1 && launch_.block.z == 1 ? Dim{i, 0, 0} : Dim{i % x, i / x % y, i / x / y};
    thread.state = State::ready;
    self_ = &thread;
  }

  void run_block(uint64_t number) {
    block_ = {unsigned(number % launch_.grid.x), unsigned(number / launch_.grid.x % launch_.grid.y),
              unsigned(number / launch_.grid.x / launch_.grid.y)};
    serial_ = static_cast<uint32_t>(number) + 1;
    done_ = at_barrier_ = epoch_ = position_ = 0;
    view_ = 0;
    suspects_.clear();
    if (launch_.checks) {
      std::fill(known_.begin(), known_.end(), 0);
      arrange(number);
    }
    free_.clear();
    for (uint32_t i = count_; i-- > 0;) {
      threads_[i] = Thread{State::unstarted, false, i, 0, 0, 1, {}, 0, nullptr};
      free_.push_back(&fibers_[i]);
    }
    while (done_ < count_) {
      bool progress = false;
      // Threads that wait have started, and in this order; those that have not start where one before gives way.
      for (uint32_t turn = 0; turn < count_; ++turn) {
        Thread& thread = threads_[order_[turn]];
        if (thread.state == State::unstarted && turn == position_) {
          ++position_;
          thread.fiber = free_.back();
          free_.pop_back();
          thread.fiber->context.prepare(thread.fiber->low, thread.fiber->low + Stacks::kBytes, &Worker::enter);
          start(thread);
        } else if (thread.state == State::converging) {
          if (!converge(thread)) {
            progress = true;
            continue;
          }
        } else if (thread.state != State::ready) {
          continue;
        }
        progress = true;
        self_ = &thread;
        scheduler_.switch_to(thread.fiber->context);
        self_ = nullptr;
        if (shared_.stopped.load(std::memory_order_relaxed)) return;
      }
      if (!progress) {
        report_deadlock();
        return;
      }
    }
  }

  // Lets the thread go on with those of its warp that wait at the same place, unless another lane may yet come. One that
  // spins until they have gone on must not be waited for without end.
  bool converge(Thread& thread) {
    static constexpr uint32_t kMostPasses = 64;
    const uint32_t first = thread.number / kLanes * kLanes, end = std::min(first + kLanes, count_);
    uint32_t mask = 0;
    bool more = false;
    for (uint32_t i = first; i < end; ++i) {
      const Thread& other = threads_[i];
      if (other.state == State::converging && other.pc == thread.pc) mask |= 1u << (i - first);
      more = more || other.state == State::ready || other.state == State::unstarted;
    }
    if (more && ++thread.passes < kMostPasses) return false;
    for (uint32_t i = first; i < end; ++i) {
      if (!(mask >> (i - first) & 1)) continue;
      threads_[i].result = static_cast<int>(mask);
      threads_[i].state = State::ready;
    }
    return true;
  }

  // Another order of warps, and of lanes within them, for each block and seed.
  void arrange(uint64_t number) {
    std::mt19937_64 random(launch_.seed * 0x9e3779b97f4a7c15ull + number);
    std::vector<uint32_t> warps(warps_);
    for (uint32_t i = 0; i < warps_; ++i) warps[i] = i;
    std::shuffle(warps.begin(), warps.end(), random);
    uint32_t position = 0;
    for (uint32_t warp : warps) {
      const uint32_t first = position;
      for (uint32_t i = warp * kLanes; i < std::min(count_, (warp + 1) * kLanes); ++i) order_[position++] = i;
      std::shuffle(order_.begin() + first, order_.begin() + position, random);
    }
  }

  void give_way() { self_->fiber->context.switch_to(scheduler_); }

  void end_thread() {
    self_->state = State::done;
    ++done_;
    if (done_ == count_ && !suspects_.empty()) fail_uninitialised();
    complete_without(self_->number);
    if (at_barrier_ > 0) {
      if (launch_.checks) fail_partial_barrier();
      if (at_barrier_ == count_ - done_) complete_barrier(2);
    }
  }

  void complete_barrier(int kind) {
    if (!suspects_.empty()) fail_uninitialised();
    const int result = kind == 2 ? barrier_sum_ != 0 : barrier_sum_;
    for (Thread& thread : threads_) {
      if (launch_.checks && thread.state != State::done && thread.pc != barrier_pc_) different_barriers_ = true;
      thread.result = result;
      if (thread.state == State::at_barrier) thread.state = State::ready;
    }
    at_barrier_ = 0;
    ++epoch_;
  }

  // --- Warps ----------------------------------------------------------------------------------------------------

  // Waits until all lanes of the mask have come to the same operation.
  void meet(uint32_t mask, int operation, uintptr_t pc) {
    Thread& self = *self_;
    const uint32_t lane = self.number % kLanes, first = self.number - lane;
    exchange().mask = mask;
    exchange().operation = operation;
    self.pc = pc;
    if (!(mask >> lane & 1)) fail_lanes("the mask does not name the calling lane itself", mask, lane, pc);
    self.state = State::in_warp;
    if (!complete(first, mask, operation)) give_way();
  }

  // The lanes of a mask that are to come: those that the block has and, but for shuffles, that have not returned. A lane
  // that returns without a shuffle that names it is at fault; it may leave a barrier or a vote to the others.
  uint32_t awaited(uint32_t first, uint32_t mask, int operation) const {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const bool exists = first + lane < count_;
      if (!exists || (operation != shuffle && threads_[first + lane].state == State::done)) mask &= ~(1u << lane);
    }
    return mask;
  }

  // Carries an operation out if all have come to it, and lets them go on.
  bool complete(uint32_t first, uint32_t mask, int operation) {
    const uint32_t taking_part = awaited(first, mask, operation);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!(taking_part >> lane & 1)) continue;
      const Exchange& its = exchanges_[first + lane];
      if (threads_[first + lane].state != State::in_warp || its.mask != mask || its.operation != operation) return false;
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (taking_part >> lane & 1) receive(first, lane, taking_part, operation);
    }
    if (operation == sync_warp && launch_.checks) order_lanes(first, taking_part);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (taking_part >> lane & 1) threads_[first + lane].state = State::ready;
    }
    return true;
  }

  void receive(uint32_t first, uint32_t lane, uint32_t taking_part, int operation) {
    Exchange& its = exchanges_[first + lane];
    if (operation == shuffle) {
      const uint32_t source = its.source;
      const bool there = taking_part >> source & 1;
      if (launch_.checks && !there) {
        Thread& running = *self_;
        self_ = &threads_[first + lane];
        const bool named = its.mask >> source & 1;
        char words[96];
        std::snprintf(words, sizeof(words), "it reads from lane %u, which %s", source,
                      named ? "the block does not have" : "the mask does not name");
        fail_from(running, words, its.mask, source, self_->pc);
      }
      std::memcpy(its.received, there ? exchanges_[first + source].value : its.value, its.bytes);
    } else if (operation != sync_warp) {
      for (uint32_t giver = 0; giver < kLanes; ++giver) {
        if (taking_part >> giver & 1) std::memcpy(&its.gathered[giver], exchanges_[first + giver].value, sizeof(uint64_t));
      }
    }
  }

  // A thread has returned: those that waited for it may have all they need.
  void complete_without(uint32_t number) {
    const uint32_t first = number / kLanes * kLanes;
    for (uint32_t lane = 0; lane < kLanes && first + lane < count_; ++lane) {
      const Exchange& its = exchanges_[first + lane];
      if (threads_[first + lane].state == State::in_warp && its.operation != shuffle) {
        complete(first, its.mask, its.operation);
      }
    }
  }

  Exchange& exchange() { return exchanges_[self_->number]; }

  // Every lane of the mask now sees what the others have done.
  void order_lanes(uint32_t first, uint32_t mask) {
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (!(mask >> a & 1)) continue;
      for (uint32_t b = 0; b < kLanes; ++b) {
        if (mask >> b & 1) known(first + a, first + b) = threads_[first + b].clock;
      }
    }
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (mask >> a & 1) ++threads_[first + a].clock;
    }
  }

  uint32_t& known(uint32_t observer, uint32_t other) { return known_[size_t(observer) * kLanes + other % kLanes]; }

  // --- Accesses -------------------------------------------------------------------------------------------------

  Access touched(uintptr_t at, uintptr_t end, bool is_atomic, uintptr_t pc) {
    const uint32_t first = at & 3, last = std::min<uintptr_t>(end - (at & ~uintptr_t{3}), 4);
    Access access;
    access.pc = pc;
    access.serial = serial_;
    access.epoch = epoch_;
    access.clock = self_->clock;
    access.releases = shared_.releases.count(serial_);
    access.thread = static_cast<uint16_t>(self_->number);
    access.bytes = static_cast<uint8_t>((0xfu >> (4 - last)) & (0xfu << first));
    access.atomic = is_atomic;
    return access;
  }

  bool ordered(const Access& before) {
    if (before.serial != serial_) {
      const uint64_t moment = shared_.releases.after(before.serial, before.releases);
      return moment != 0 && moment <= view_;
    }
    if (before.thread == self_->number || before.epoch < epoch_) return true;
    return before.thread / kLanes == self_->number / kLanes && known(self_->number, before.thread) >= before.clock;
  }

  bool conflicts(const Access& before, const Access& now) {
    return before.serial != 0 && (before.bytes & now.bytes) && !(before.atomic && now.atomic) && !ordered(before);
  }

  // Notes an access; tells whether another one, unordered, makes it a race.
  bool touch(Word& word, const Access& now, bool is_write, Access& other) {
    if (conflicts(word.write, now)) {
      other = word.write;
      return true;
    }
    if (is_write) {
      for (const Access* read : {&word.read, &word.other_read}) {
        if (conflicts(*read, now)) {
          other = *read;
          return true;
        }
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

  void shared_access(uintptr_t address, uint32_t bytes, bool is_write, bool is_atomic, uintptr_t pc, Shadow& shadow,
                     std::vector<uint32_t>& written, uintptr_t begin) {
    for (uintptr_t at = address; at < address + bytes; ++at) {
      uint32_t& serial = written[at - begin];
      if (is_write) {
        serial = serial_;
      } else if (serial != serial_) {
        // Or will another thread write it before the next barrier? Then it is a race, and told as one.
        suspects_.push_back({address, bytes, pc, self_->index});
        serial = serial_;
      }
    }
    for (uintptr_t at = address; at < address + bytes; at = (at | 3) + 1) {
      Word& word = *shadow.at(at);
      if (word.write.serial != serial_) word.write = Access{};  // another block's shared memory lay here
      if (word.read.serial != serial_) word.read = Access{};
      if (word.other_read.serial != serial_) word.other_read = Access{};
      Access other;
      if (touch(word, touched(at, address + bytes, is_atomic, pc), is_write, other)) {
        fail_race(at, bytes, is_write, pc, other, -1);
      }
    }
  }

  void static_access(uintptr_t address, uint32_t bytes, bool is_write, bool is_atomic, uintptr_t pc) {
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const uintptr_t begin = static_base_ + launch_.shared_variables[i].begin;
      const uintptr_t end = static_base_ + launch_.shared_variables[i].end;
      if (address < begin || address >= end) continue;
      if (address + bytes > end) break;
      shared_access(address, bytes, is_write, is_atomic, pc, static_shadow_, static_written_, static_begin_);
      return;
    }
    Fault fault{};
    fault.kind = shared_out_of_bounds;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = -2;  // the nearest variable that begins before
    uintptr_t nearest = 0;
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const uintptr_t begin = static_base_ + launch_.shared_variables[i].begin;
      if (begin <= address && begin >= nearest) {
        nearest = begin;
        fault.region = -3 - static_cast<int64_t>(i);
        fault.offset = static_cast<int64_t>(address - begin);
      }
    }
    fail(fault);
  }

  void find_shared_memory() {
    dynamic_shadow_ = Shadow(dynamic_begin_, dynamic_begin_ + launch_.shared_bytes + 4);
    dynamic_written_.assign(launch_.shared_bytes, 0);
    if (launch_.shared_variable_count == 0) return;
    static_base_ = reinterpret_cast<uintptr_t>(launch_.shared_base());
    static_begin_ = ~uintptr_t{0};
    static_end_ = 0;
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      static_begin_ = std::min(static_begin_, static_base_ + launch_.shared_variables[i].begin);
      static_end_ = std::max(static_end_, static_base_ + launch_.shared_variables[i].end);
    }
    static_end_ += kBehindStatic;  // one past the last variable is nobody's, and likely to be met
    static_shadow_ = Shadow(static_begin_, static_end_);
    static_written_.assign(static_end_ - static_begin_, 0);
  }

  // --- Faults ---------------------------------------------------------------------------------------------------

  [[noreturn]] void fail_uninitialised() {
    const Suspect& first = suspects_.front();
    Fault fault{};
    fault.kind = uninitialised;
    fault.pc = first.pc;
    fault.address = first.address;
    fault.size = first.bytes;
    fault.region = -1;
    fault.block = block_;
    fault.thread = first.thread;
    shared_.report(fault);
    leave();
  }

  [[noreturn]] void fail_race(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc, const Access& other, int64_t region) {
    Fault fault{};
    fault.kind = race;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = region;
    if (region >= 0) fault.offset = static_cast<int64_t>(address - shared_.memory[region].begin);
    fault.has_other = 1;
    fault.other.pc = other.pc;
    const uint64_t number = other.serial - 1;
    fault.other.block = {unsigned(number % launch_.grid.x), unsigned(number / launch_.grid.x % launch_.grid.y),
                         unsigned(number / launch_.grid.x / launch_.grid.y)};
    fault.other.thread = threads_[other.thread].index;
    fail(fault);
  }

  [[noreturn]] void fail_lanes(const char* words, uint32_t mask, uint32_t lane, uintptr_t pc) {
    fail_from(*self_, words, mask, lane, pc);
  }

  // With the thread whose fault it is in self_, and the stack of `running`.
  [[noreturn]] void fail_from(Thread& running, const char* words, uint32_t mask, uint32_t lane, uintptr_t pc) {
    Fault fault{};
    fault.kind = inactive_lane;
    fault.pc = pc;
    fault.mask = mask;
    fault.lane = lane;
    fault.block = block_;
    fault.thread = self_->index;
    std::snprintf(fault.words, sizeof(fault.words), "%s", words);
    shared_.report(fault);
    self_ = &running;
    leave();
  }

  [[noreturn]] void fail_partial_barrier() {
    Fault fault{};
    fault.kind = partial_barrier;
    fault.pc = self_->state == State::done ? barrier_pc_ : self_->pc;
    std::snprintf(fault.words, sizeof(fault.words), "%u of %u threads have returned from the kernel", done_, count_);
    list_waits(fault);
    fail(fault);
  }

  // Nobody can go on: some wait at a barrier, others for lanes that do not come.
  void report_deadlock() {
    Fault fault{};
    fault.block = block_;
    list_waits(fault);
    for (const Thread& thread : threads_) {
      if (thread.state != State::in_warp) continue;
      fault.kind = inactive_lane;
      fault.pc = thread.pc;
      const Exchange& own = exchanges_[thread.number];
      fault.mask = own.mask;
      fault.thread = thread.index;
      const uint32_t first = thread.number / kLanes * kLanes;
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if (!(own.mask >> lane & 1)) continue;
        const bool exists = first + lane < count_;
        const Thread* other = exists ? &threads_[first + lane] : nullptr;
        const Exchange* its = exists ? &exchanges_[first + lane] : nullptr;
        if (exists && other->state == State::in_warp && its->mask == own.mask && its->operation == own.operation) continue;
        fault.lane = lane;
        const char* why = !exists                               ? "the block has no such thread"
                          : other->state == State::done         ? "it has returned"
                          : other->state == State::at_barrier   ? "it waits at a barrier of the block"
                          : its->operation != own.operation ? "it is at another operation of the warp"
                                                                 : "it is here with another mask";
        std::snprintf(fault.words, sizeof(fault.words), "the mask names lane %u, and %s", lane, why);
        break;
      }
      shared_.report(fault);
      return;
    }
    fault.kind = partial_barrier;
    fault.pc = barrier_pc_;
    for (const Thread& thread : threads_) {
      if (thread.state == State::at_barrier) fault.thread = thread.index;
    }
    std::snprintf(fault.words, sizeof(fault.words), "%u of %u threads wait at it", at_barrier_, count_);
    shared_.report(fault);
  }

  void list_waits(Fault& fault) const {
    for (const Thread& thread : threads_) {
      if (thread.state == State::done || thread.state == State::unstarted || thread.pc == 0) continue;
      int place = 0;
      while (place < fault.waits && fault.wait[place].pc != thread.pc) ++place;
      if (place == kMostWaits) continue;
      if (place == fault.waits) {
        ++fault.waits;
        fault.wait[place].pc = thread.pc;
        fault.wait[place].block = block_;
        fault.wait[place].thread = thread.index;
      }
      ++fault.wait[place].count;
    }
  }

  // A read of shared memory that nobody had written.
  struct Suspect {
    uintptr_t address;
    uint32_t bytes;
    uintptr_t pc;
    Dim thread;
  };

  Shared& shared_;
  const Launch& launch_;
  uint32_t count_ = 0, warps_ = 0;
  std::vector<Thread> threads_;
  std::vector<Exchange> exchanges_;
  std::vector<uint32_t> order_;
  Stacks stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> free_;
  uint32_t position_ = 0;  // in order_, of the next thread to start
  Context scheduler_;
  Thread* self_ = nullptr;
  Dim block_{};
  uint32_t serial_ = 0, epoch_ = 0, done_ = 0, at_barrier_ = 0;
  int barrier_sum_ = 0;
  uintptr_t barrier_pc_ = 0;
  bool different_barriers_ = false;
  uint64_t accesses_ = 0, atomics_ = 0;
  uint64_t view_ = 0;
  int64_t last_region_ = -1;
  std::vector<uint32_t> known_;
  std::vector<char> dynamic_;
  uintptr_t dynamic_begin_ = 0;
  uintptr_t static_base_ = 0, static_begin_ = 1, static_end_ = 1;
  Shadow dynamic_shadow_, static_shadow_;
  std::vector<uint32_t> dynamic_written_, static_written_;
  std::vector<Suspect> suspects_;
};

}  // namespace opsmith::emulator
