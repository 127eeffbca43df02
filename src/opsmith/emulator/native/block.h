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
  bool fenced;           // since it last wrote to global memory?
  bool fenced_in_block;  // since it last wrote at all?
  bool wrote;            // to global memory, since its last fence
  uint32_t number;
  int result;      // of a barrier; the mask of a convergence
  uint32_t passes;  // of the scheduler, while converging
  uint32_t clock;  // synchronisations of its warp so far
  Dim index;
  uintptr_t pc;  // where it waits
  int line;      // of its barrier
  uint32_t releases;  // of its own so far
  uint64_t view;      // the latest release that it has seen
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
    released_.resize(launch_.checks ? count_ : 0);
  }

  // Blocks, until there are none or a fault has been found.
  void run() {
    current = this;
    if (launch_.checks) find_shared_memory();
    std::mt19937_64 random(launch_.seed);
    const bool in_order = launch_.seed == kInOrder;
    const uint64_t rotation = shared_.blocks && !in_order ? random() % shared_.blocks : 0;
    const bool backwards = !in_order && random() & 1;
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

  int barrier(int kind, int predicate, int line, uintptr_t pc) {
    Thread& self = *self_;
    self.pc = pc;
    self.line = line;
    if (at_barrier_ == 0) {
      barrier_sum_ = kind == 1 ? 1 : 0;
      barrier_kind_ = kind;
      barrier_pc_ = pc;
    }
    barrier_sum_ = kind == 1 ? barrier_sum_ & (predicate != 0) : barrier_sum_ + (predicate != 0);
    ++at_barrier_;
    if (launch_.checks && done_ > 0) fail_partial_barrier();
    if (at_barrier_ == count_ - done_) {
      complete_barrier();
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

  void yield(uintptr_t pc) {
    self_->pc = pc;
    check_time(pc);
    give_way();
  }

  // --- What instrumented code calls before each access ----------------------------------------------------------

  void access(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc, Manner how = plain, bool is_read = false) {
    is_read = is_read || !is_write;
    if ((++accesses_ & 0xfff) == 0) check_time(pc);
    Thread& self = *self_;
    if (address - reinterpret_cast<uintptr_t>(self.fiber->low) < Stacks::kBytes) return;
    if (address - dynamic_begin_ < launch_.shared_bytes + kRedZone) {
      if (address + bytes > dynamic_begin_ + launch_.shared_bytes) {
        fail_memory(shared_out_of_bounds, address, bytes, is_write, pc, -1);
      }
      shared_access(address, bytes, is_write, is_read, how, pc, dynamic_shadow_, dynamic_written_, dynamic_begin_);
      return;
    }
    // What lies behind the last variable may be a tensor: thread-local storage is allocated like any memory.
    if (address - static_begin_ < static_end_ - static_begin_ &&
        (address < static_end_ - kBehindStatic || shared_.memory.find(address) < 0)) {
      static_access(address, bytes, is_write, is_read, how, pc);
      return;
    }
    int64_t region = last_region_;
    GlobalMemory& memory = shared_.memory;
    if (region < 0 || address < memory[region].begin || address >= memory[region].end) {
      region = memory.find(address);
      if (region < 0) fail_nowhere(address, bytes, is_write, pc);
      last_region_ = region;
    }
    if (address + bytes > memory[region].end) fail_memory(out_of_bounds, address, bytes, is_write, pc, region);
    if (is_write) {
      if (memory[region].kind == constant_variable) fail_memory(write_to_constant, address, bytes, true, pc, region);
      self.fenced = self.fenced_in_block = false;
      self.wrote = true;
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
        found = touch(*word, touched(at, address + bytes, how, pc), is_write, other);
      }
      if (found) fail_race(at, bytes, is_write, pc, other, region);
    }
  }

  // `kind` as in opsmith_atomic_access.
  void atomic_access(uintptr_t address, uint32_t bytes, int kind, uintptr_t pc) {
    if (!launch_.checks) {
      if ((++accesses_ & 0x3f) == 0) yield(pc);
      return;
    }
    if (address % bytes != 0) fail_memory(misaligned, address, bytes, kind != 1, pc, -1);
    synchronising_access(address, bytes, kind != 1, kind != 3, kind == 2 ? compare_and_swap : atomic_operation, pc);
  }

  // Code for GPUs waits for flags that are volatile, and sets them after a fence.
  void volatile_access(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    if (address - reinterpret_cast<uintptr_t>(self_->fiber->low) < Stacks::kBytes) return;
    synchronising_access(address, bytes, is_write, !is_write, Manner::volatile_access, pc);
  }

  void fence(int scope) {
    self_->fenced_in_block = true;
    if (scope == 0) return;
    self_->fenced = true;
    self_->wrote = false;
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
      std::snprintf(fault.words, sizeof(fault.words), "%llu", static_cast<unsigned long long>(launch_.shared_bytes));
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
  static constexpr uintptr_t kRedZone = 4096, kBehindStatic = 256, kFar = 1 << 20;

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

  Dim index_of(uint32_t i) const {
    const uint32_t x = launch_.block.x, y = launch_.block.y;
    return y == 1 && launch_.block.z == 1 ? Dim{i, 0, 0} : Dim{i % x, i / x % y, i / x / y};
  }

  void start(Thread& thread) {
    thread.index = index_of(thread.number);
    thread.state = State::ready;
    self_ = &thread;
  }

  void run_block(uint64_t number) {
    block_ = {unsigned(number % launch_.grid.x), unsigned(number / launch_.grid.x % launch_.grid.y),
              unsigned(number / launch_.grid.x / launch_.grid.y)};
    serial_ = static_cast<uint32_t>(number) + 1;
    for (const uint32_t thread : releasing_) released_[thread].clear();
    releasing_.clear();
    done_ = at_barrier_ = in_warp_ = epoch_ = position_ = 0;
    view_ = 0;
    suspects_.clear();
    if (launch_.checks) {
      std::fill(known_.begin(), known_.end(), 0);
      arrange(number);
    }
    free_.clear();
    for (uint32_t i = count_; i-- > 0;) {
      threads_[i] = Thread{State::unstarted, false, false, false, i, 0, 0, 1, {}, 0, 0, 0, 0, nullptr};
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
    if (launch_.seed == kInOrder) return;
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
    if (in_warp_ > 0) complete_without(self_->number);
    if (at_barrier_ > 0) {
      if (launch_.checks) fail_partial_barrier();
      if (at_barrier_ == count_ - done_) complete_barrier();
    }
  }

  void complete_barrier() {
    if (!suspects_.empty()) fail_uninitialised();
    const int result = barrier_kind_ == 2 ? barrier_sum_ != 0 : barrier_sum_;
    if (launch_.checks) join_all();
    for (Thread& thread : threads_) {
      thread.result = result;
      if (thread.state == State::at_barrier) thread.state = State::ready;
    }
    at_barrier_ = 0;
    ++epoch_;
  }

  // What one thread has seen or fenced, all have after a barrier; it must have been the same one for all.
  void join_all() {
    uint64_t view = 0;
    bool fenced = false;
    for (const Thread& thread : threads_) {
      if (thread.line != self_->line) fail_different_barriers();
      view = std::max(view, thread.view);
      fenced = fenced || thread.fenced;
    }
    for (Thread& thread : threads_) {
      thread.view = view;
      thread.fenced = thread.fenced || (fenced && !thread.wrote);
    }
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
    ++in_warp_;
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
    in_warp_ -= __builtin_popcount(taking_part);
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

  // Every lane of the mask now sees what the others have done, and what they had seen of lanes that are not in it.
  void order_lanes(uint32_t first, uint32_t mask) {
    for (uint32_t c = 0; c < kLanes && first + c < count_; ++c) {
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
      if (mask >> a & 1) view = std::max(view, threads_[first + a].view);
    }
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (!(mask >> a & 1)) continue;
      for (uint32_t b = 0; b < kLanes; ++b) {
        if (mask >> b & 1) known(first + a, first + b) = threads_[first + b].clock;
      }
    }
    for (uint32_t a = 0; a < kLanes; ++a) {
      if (!(mask >> a & 1)) continue;
      ++threads_[first + a].clock;
      threads_[first + a].view = view;
    }
  }

  uint32_t& known(uint32_t observer, uint32_t other) { return known_[size_t(observer) * kLanes + other % kLanes]; }

  // --- Accesses -------------------------------------------------------------------------------------------------

  // An access by which threads learn of each other: after a fence it releases what was written before, and it sees what
  // others have released at the address.
  void synchronising_access(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    const Thread before = *self_;
    access(address, bytes, is_write, pc, how, is_read);
    Thread& self = *self_;
    self.fenced = before.fenced;  // this is no write that a fence must follow
    self.fenced_in_block = before.fenced_in_block;
    self.wrote = before.wrote;
    const auto [seen, released] = shared_.releases.operate(
        address, serial_, is_write && self.fenced_in_block, is_write && self.fenced);
    view_ = std::max(view_, seen);
    self.view = std::max(self.view, seen);
    if (released != 0) {
      const uint32_t first = self.number / kLanes * kLanes;
      for (uint32_t i = first; i < std::min(first + kLanes, count_); ++i) {
        // And what lanes had done that this one has synchronised with.
        if (i != self.number && known(self.number, i) == 0) continue;
        if (released_[i].empty()) releasing_.push_back(i);
        released_[i].push_back(released);
        ++threads_[i].releases;
      }
    }
    if ((++atomics_ & 0x3f) == 0) yield(pc);
  }

  Access touched(uintptr_t at, uintptr_t end, Manner how, uintptr_t pc) {
    const uint32_t first = at & 3, last = std::min<uintptr_t>(end - (at & ~uintptr_t{3}), 4);
    Access access;
    access.pc = static_cast<int32_t>(pc - reinterpret_cast<uintptr_t>(launch_.entry));
    access.serial = serial_;
    access.epoch = epoch_;
    access.clock = self_->clock;
    access.releases = shared_.releases.count(serial_);
    access.thread = static_cast<uint16_t>(self_->number);
    access.bytes = static_cast<uint8_t>((0xfu >> (4 - last)) & (0xfu << first));
    access.own_releases = self_->releases;
    access.how = how;
    return access;
  }

  bool ordered(const Access& before) {
    if (before.serial != serial_) {
      const uint64_t moment = shared_.releases.after(before.serial, before.releases);
      return moment != 0 && moment <= view_;
    }
    if (before.thread == self_->number || before.epoch < epoch_) return true;
    const auto& released = released_[before.thread];
    if (before.own_releases < released.size() && released[before.own_releases] <= self_->view) return true;
    return same_warp(before) && known(self_->number, before.thread) >= before.clock;
  }

  bool same_warp(const Access& before) const {
    return before.serial == serial_ && before.thread / kLanes == self_->number / kLanes;
  }

  // Volatile is as good as atomic between warps, but does not order the lanes of one.
  bool allowed(const Access& before, bool before_writes, const Access& now, bool now_writes) const {
    if (before.how != plain && now.how != plain) {
      return before.how != Manner::volatile_access || now.how != Manner::volatile_access || !same_warp(before);
    }
    // The loop around a compare-and-swap begins with a plain look, which may be an old one.
    return (before.how == compare_and_swap && !now_writes) || (now.how == compare_and_swap && !before_writes);
  }

  bool conflicts(const Access& before, bool before_writes, const Access& now, bool now_writes) {
    return before.serial != 0 && (before.bytes & now.bytes) && !allowed(before, before_writes, now, now_writes) &&
           !ordered(before);
  }

  // Notes an access; tells whether another one, unordered, makes it a race.
  bool touch(Word& word, const Access& now, bool is_write, Access& other) {
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

  void shared_access(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc,
                     Shadow& shadow, std::vector<uint32_t>& written, uintptr_t begin) {
    if (is_write) self_->fenced_in_block = false;
    for (uintptr_t at = address; at < address + bytes; ++at) {
      uint32_t& serial = written[at - begin];
      if (is_read && serial != serial_) {
        // Or will another thread write it before the next barrier? Then it is a race, and told as one.
        suspects_.push_back({address, bytes, pc, self_->index});
      }
      serial = serial_;
    }
    for (uintptr_t at = address; at < address + bytes; at = (at | 3) + 1) {
      Word& word = *shadow.at(at);
      if (word.write.serial != serial_) word.write = Access{};  // another block's shared memory lay here
      if (word.other_write.serial != serial_) word.other_write = Access{};
      if (word.read.serial != serial_) word.read = Access{};
      if (word.other_read.serial != serial_) word.other_read = Access{};
      Access other;
      if (touch(word, touched(at, address + bytes, how, pc), is_write, other)) {
        fail_race(at, bytes, is_write, pc, other, -1);
      }
    }
  }

  void static_access(uintptr_t address, uint32_t bytes, bool is_write, bool is_read, Manner how, uintptr_t pc) {
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const uintptr_t begin = static_base_ + launch_.shared_variables[i].begin;
      const uintptr_t end = static_base_ + launch_.shared_variables[i].end;
      if (address < begin || address >= end) continue;
      if (address + bytes > end) break;
      if (launch_.shared_variables[i].kind == ignored_variable) return;
      shared_access(address, bytes, is_write, is_read, how, pc, static_shadow_, static_written_, static_begin_);
      return;
    }
    fail_static(address, bytes, is_write, pc);
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

  // At a static __shared__ variable: the one that ends nearest before the address, else the one that begins nearest.
  [[noreturn]] void fail_static(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    Fault fault{};
    fault.kind = shared_out_of_bounds;
    fault.is_write = is_write;
    fault.pc = pc;
    fault.address = address;
    fault.size = bytes;
    fault.region = -2;
    uintptr_t least = ~uintptr_t{0};
    for (size_t i = 0; i < launch_.shared_variable_count; ++i) {
      const uintptr_t begin = static_base_ + launch_.shared_variables[i].begin;
      const uintptr_t end = static_base_ + launch_.shared_variables[i].end;
      const uintptr_t away = distance(address, begin, end);
      if (away >= least) continue;
      least = away;
      fault.region = -3 - static_cast<int64_t>(i);
      fault.offset = static_cast<int64_t>(address - begin);
    }
    fail(fault);
  }

  static uintptr_t distance(uintptr_t address, uintptr_t begin, uintptr_t end) {
    return address < begin ? begin - address : address < end ? 0 : address - end;
  }

  // At an address that is nobody's: told by what lies nearest to it, shared memory included.
  [[noreturn]] void fail_nowhere(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t pc) {
    if (address < 4096) fail_memory(null_pointer, address, bytes, is_write, pc, -1);
    const int64_t region = shared_.memory.nearest(address);
    const uintptr_t to_static = launch_.shared_variable_count ? distance(address, static_begin_, static_end_) : kFar;
    const uintptr_t to_dynamic =
        launch_.shared_bytes ? distance(address, dynamic_begin_, dynamic_begin_ + launch_.shared_bytes) : kFar;
    const uintptr_t to_region =
        region < 0 ? kFar : distance(address, shared_.memory[region].begin, shared_.memory[region].end);
    if (to_static < std::min({kFar, to_dynamic, to_region})) fail_static(address, bytes, is_write, pc);
    if (to_dynamic < std::min(kFar, to_region)) fail_memory(shared_out_of_bounds, address, bytes, is_write, pc, -1);
    fail_memory(out_of_bounds, address, bytes, is_write, pc, -1);
  }

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
    fault.other.pc = reinterpret_cast<uintptr_t>(launch_.entry) + other.pc;
    const uint64_t number = other.serial - 1;
    fault.other.block = {unsigned(number % launch_.grid.x), unsigned(number / launch_.grid.x % launch_.grid.y),
                         unsigned(number / launch_.grid.x / launch_.grid.y)};
    fault.other.thread = index_of(other.thread);
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

  // Told of a thread that is at the barrier.
  [[noreturn]] void fail_partial_barrier() {
    Fault fault{};
    fault.kind = partial_barrier;
    const Thread* waiting = self_;
    for (const Thread& thread : threads_) {
      if (waiting->state == State::done && thread.state == State::at_barrier) waiting = &thread;
    }
    std::snprintf(fault.words, sizeof(fault.words), "%u of %u threads have returned from the kernel", done_, count_);
    fail_barrier(fault, *waiting);
  }

  [[noreturn]] void fail_different_barriers() {
    Fault fault{};
    fault.kind = partial_barrier;
    std::snprintf(fault.words, sizeof(fault.words), "its threads are at different ones");
    fail_barrier(fault, *self_);
  }

  [[noreturn]] void fail_barrier(Fault& fault, const Thread& waiting) {
    fault.pc = waiting.pc;
    fault.block = block_;
    fault.thread = waiting.index;
    list_waits(fault);
    shared_.report(fault);
    leave();
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
  uint32_t serial_ = 0, epoch_ = 0, done_ = 0, at_barrier_ = 0, in_warp_ = 0;
  int barrier_sum_ = 0;
  uintptr_t barrier_pc_ = 0;
  int barrier_kind_ = 0;
  std::vector<std::vector<uint64_t>> released_;  // moments, by thread
  std::vector<uint32_t> releasing_;              // threads that have any
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
