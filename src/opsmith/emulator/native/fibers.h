// Cooperative threads: each has a stack, and switches to another in a few instructions where it yields.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace opsmith::emulator {

#if defined(__x86_64__)

// Saves the registers that a call preserves on the stack, its pointer in *save, and continues where `load` was saved.
extern "C" void opsmith_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.globl opsmith_switch_stack
.hidden opsmith_switch_stack
.type opsmith_switch_stack, @function
opsmith_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size opsmith_switch_stack, .-opsmith_switch_stack
)");

class Context {
 public:
  void prepare(char*, char* high, void (*entry)()) {
    // As if `entry` were about to be returned to; the stack is then aligned as after a call.
    auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(high) & ~uintptr_t{15});
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    pointer_ = top;
  }

  void switch_to(Context& other) { opsmith_switch_stack(&pointer_, other.pointer_); }

 private:
  void* pointer_ = nullptr;
};

#else

class Context {
 public:
  void prepare(char* low, char* high, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = low;
    context_.uc_stack.ss_size = high - low;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

  void switch_to(Context& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_;
};

#endif

// A stack, and where it was left. A thread that ends leaves it to the next one to start, so a block without barriers
// needs one.
struct Fiber {
  // More than the 512 KiB of local memory that a GPU has for a thread: a CPU's frames are larger. What is never touched
  // takes no memory.
  static constexpr size_t kBytes = 1024 * 1024;
  // Below the stack, never accessed. Kernels touch each page of a large frame in turn (-fstack-clash-protection).
  static constexpr size_t kGuard = 64 * 1024;

  Context context;
  char* low;   // of the guard
  char* high;

  bool holds(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(low) < kGuard + kBytes; }
  bool guards(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(low) < kGuard; }

  void begin_with(void (*entry)()) { context.prepare(low + kGuard, high, entry); }
};

// As many fibers as have been needed at one time so far.
class Fibers {
 public:
  Fibers() = default;
  Fibers(const Fibers&) = delete;
  ~Fibers() {
    for (char* memory : mapped_) munmap(memory, kTogether * kApart);
  }

  Fiber* take() {
    if (free_.empty()) grow();
    Fiber* const taken = free_.back();
    free_.pop_back();
    return taken;
  }

  void give_back(Fiber* fiber) { free_.push_back(fiber); }

  // What deep recursions and large arrays have taken; none of the fibers may be in use.
  void give_memory_back() {
    for (const Fiber& fiber : fibers_) madvise(fiber.low + Fiber::kGuard, Fiber::kBytes - kKept, MADV_DONTNEED);
  }

  // Also those whose threads have been left where they were.
  void take_all_back() {
    free_.clear();
    for (auto fiber = fibers_.rbegin(); fiber != fibers_.rend(); ++fiber) free_.push_back(&*fiber);
  }

 private:
  static constexpr size_t kTogether = 32, kApart = Fiber::kGuard + Fiber::kBytes, kKept = 16 * 1024;
  // Stacks whose tops have the same place in a page would share the same few sets of the cache.
  static constexpr size_t kColours = 16, kColour = 256;

  void grow() {
    void* const found = mmap(nullptr, kTogether * kApart, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (found == MAP_FAILED) throw std::runtime_error("the system has no more memory for the stacks of threads");
    char* const memory = static_cast<char*>(found);
    mapped_.push_back(memory);
    const size_t before = fibers_.size();
    for (size_t i = 0; i < kTogether; ++i) {
      char* const low = memory + i * kApart;
      // The system counts each guard as two more mappings (vm.max_map_count).
      if (mprotect(low, Fiber::kGuard, PROT_NONE) != 0) {
        throw std::runtime_error("the system allows no more guard pages for the stacks of threads (vm.max_map_count)");
      }
      fibers_.push_back({{}, low, low + kApart - (before + i) % kColours * kColour});
    }
    for (size_t i = fibers_.size(); i-- > before;) free_.push_back(&fibers_[i]);
  }

  std::vector<char*> mapped_;
  std::deque<Fiber> fibers_;
  std::vector<Fiber*> free_;
};

}  // namespace opsmith::emulator
