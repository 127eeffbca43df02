// One thread of the machine that runs blocks of a launch, one after another, and serves what their threads call.
#pragma once

#include <chrono>
#include <cstdarg>
#include <string>

#include "accesses.h"
#include "schedule.h"

namespace opsmith::emulator {

// What a thread of the machine keeps from one launch to the next.
struct Workplace {
  static constexpr size_t kSharedBytes = 1 << 20;  // more than any GPU has

  Workplace() {
    void* const found = mmap(nullptr, kSharedBytes + SharedMemory::kRedZone, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) throw std::runtime_error("the system has no memory for the shared memory of a block");
    dynamic_shared = found;
  }
  Workplace(const Workplace&) = delete;
  ~Workplace() { munmap(dynamic_shared, kSharedBytes + SharedMemory::kRedZone); }

  // Between two launches: the next one reuses the memory of the stacks, which is not kept forever.
  void tidy() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_tidying_) return;
    next_tidying_ = now + std::chrono::seconds(1);
    fibers.give_memory_back();
  }

  // It never moves: a kernel that declares dynamic shared memory at file scope keeps its address in a variable of the
  // machine's thread.
  void* dynamic_shared;
  Fibers fibers;

 private:
  std::chrono::steady_clock::time_point next_tidying_{};
};

class Worker {
 public:
  Worker(Grid& grid, Workplace& place)
      : grid_(grid),
        block_(grid.launch),
        reports_(grid, block_),
        races_(grid, block_, reports_),
        shared_(grid, block_, reports_, races_, place.dynamic_shared),
        accesses_(grid, block_, reports_, races_, shared_),
        warps_(grid, block_, reports_, races_),
        schedule_(grid, block_, place.fibers, reports_, races_, shared_, warps_, &Worker::enter) {}

  // Blocks, until there are none or the launch is halted.
  void run() {
    current = this;
    std::mt19937_64 random(grid_.launch.seed);
    const bool in_order = grid_.launch.seed == kInOrder;
    const uint64_t rotation = grid_.blocks && !in_order ? random() % grid_.blocks : 0;
    const bool backwards = !in_order && random() & 1;
    for (;;) {
      const uint64_t taken = grid_.next.fetch_add(1);
      if (taken >= grid_.blocks) break;
      uint64_t number = taken + rotation;
      if (number >= grid_.blocks) number -= grid_.blocks;
      if (backwards) number = grid_.blocks - 1 - number;
      if (grid_.halted()) {
        grid_.put_off = number;
        break;
      }
      schedule_.run_block(number);
    }
  }
  ~Worker() { current = nullptr; }

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
  void fence(int scope) { races_.fence(scope); }
  void yield(uintptr_t pc) { accesses_.yield(pc); }

  Space space(uintptr_t address) const {
    if (block_.self->fiber->holds(address)) return Space::local;
    if (shared_.holds(address)) return Space::shared;
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
      while (!grid_.printed.write(all.empty() ? some : all.data(), length)) reports_.heed_halt(pc);
    }
    reports_.heed_halt(pc);
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
  [[noreturn]] void fail(FaultKind kind, uintptr_t pc, const char* words = "") { reports_.fail(kind, pc, words); }
  void heed_halt(uintptr_t pc) { reports_.heed_halt(pc); }

 private:
  static void enter() { current->schedule_.run_threads(); }

  Grid& grid_;
  Block block_;
  Reports reports_;
  Races races_;
  SharedMemory shared_;
  Accesses accesses_;
  Warps warps_;
  Schedule schedule_;
};

}  // namespace opsmith::emulator
