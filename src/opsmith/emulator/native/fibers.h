// Threads that give way to each other only where they say so: a stack each, and a switch of a few instructions.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace opsmith::emulator {

#if defined(__x86_64__)

// Saves the registers that a call preserves on the stack, its pointer in *save, and goes on where `load` was saved.
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
  void prepare(char* low, char* high, void (*entry)()) {
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

// Stacks side by side, each with a page below it that must not be touched.
class Stacks {
 public:
  static constexpr size_t kBytes = 256 * 1024;

  Stacks() = default;
  Stacks(const Stacks&) = delete;
  ~Stacks() { release(); }

  void reserve(size_t count) {
    if (count <= count_) return;
    release();
    const size_t page = sysconf(_SC_PAGESIZE);
    void* memory = mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for the stacks of a block");
    base_ = static_cast<char*>(memory);
    count_ = count;
    for (size_t i = 0; i < count; ++i) mprotect(base_ + i * kBytes, page, PROT_NONE);
  }

  char* low(size_t index) const { return base_ + index * kBytes; }
  char* high(size_t index) const { return base_ + (index + 1) * kBytes; }

 private:
  void release() {
    if (base_ != nullptr) munmap(base_, count_ * kBytes);
    base_ = nullptr;
    count_ = 0;
  }

  char* base_ = nullptr;
  size_t count_ = 0;
};

}  // namespace opsmith::emulator
