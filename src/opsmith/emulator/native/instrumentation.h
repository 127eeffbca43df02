// What instrumented code calls: before each load and store, and where arithmetic or a pointer goes wrong.
//
// Kernels to be checked are compiled with -fsanitize=thread, by which the compiler emits a call before every load and
// store; the functions called are these, not the sanitizer's own. -fsanitize=signed-integer-overflow,alignment do the
// same for arithmetic and pointers.
#pragma once

#include <cstring>

#include "exported.h"
#include "worker.h"

namespace opsmith::emulator {

namespace {

inline void touched(void* address, uint32_t bytes, bool is_write, uintptr_t pc) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) {
    worker->access(reinterpret_cast<uintptr_t>(address), bytes, is_write, pc);
  }
}

// The same for as many bytes as there may be.
inline void touched_range(const void* address, size_t bytes, bool is_write, uintptr_t pc) {
  static constexpr size_t kMost = size_t{1} << 30;
  auto* const begin = const_cast<char*>(static_cast<const char*>(address));
  for (size_t done = 0; done < bytes; done += kMost) {
    touched(begin + done, static_cast<uint32_t>(std::min(bytes - done, kMost)), is_write, pc);
  }
}

inline void touched_volatile(void* address, uint32_t bytes, bool is_write, uintptr_t pc) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) {
    worker->volatile_access(reinterpret_cast<uintptr_t>(address), bytes, is_write, pc);
  }
}

}  // namespace

#define OPSMITH_TSAN(bytes)                                                                                      \
  OPSMITH_EXPORTED void __tsan_read##bytes(void* address) { touched(address, bytes, false, OPSMITH_CALLER); }     \
  OPSMITH_EXPORTED void __tsan_write##bytes(void* address) { touched(address, bytes, true, OPSMITH_CALLER); }     \
  OPSMITH_EXPORTED void __tsan_unaligned_read##bytes(void* address) {                                             \
    touched(address, bytes, false, OPSMITH_CALLER);                                                              \
  }                                                                                                              \
  OPSMITH_EXPORTED void __tsan_unaligned_write##bytes(void* address) {                                            \
    touched(address, bytes, true, OPSMITH_CALLER);                                                               \
  }                                                                                                              \
  OPSMITH_EXPORTED void __tsan_volatile_read##bytes(void* address) {                                              \
    touched_volatile(address, bytes, false, OPSMITH_CALLER);                                                     \
  }                                                                                                              \
  OPSMITH_EXPORTED void __tsan_volatile_write##bytes(void* address) {                                             \
    touched_volatile(address, bytes, true, OPSMITH_CALLER);                                                      \
  }                                                                                                              \
  OPSMITH_EXPORTED void __tsan_unaligned_volatile_read##bytes(void* address) {                                    \
    touched_volatile(address, bytes, false, OPSMITH_CALLER);                                                     \
  }                                                                                                              \
  OPSMITH_EXPORTED void __tsan_unaligned_volatile_write##bytes(void* address) {                                   \
    touched_volatile(address, bytes, true, OPSMITH_CALLER);                                                      \
  }
OPSMITH_TSAN(1)
OPSMITH_TSAN(2)
OPSMITH_TSAN(4)
OPSMITH_TSAN(8)
OPSMITH_TSAN(16)

OPSMITH_EXPORTED void __tsan_read_range(void* address, size_t bytes) {
  touched_range(address, bytes, false, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __tsan_write_range(void* address, size_t bytes) {
  touched_range(address, bytes, true, OPSMITH_CALLER);
}
// Copies of a size known only at run time are calls of the C library, for which the linker puts these.
OPSMITH_EXPORTED void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  touched_range(from, bytes, false, OPSMITH_CALLER);
  touched_range(to, bytes, true, OPSMITH_CALLER);
  return std::memcpy(to, from, bytes);
}
OPSMITH_EXPORTED void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  touched_range(from, bytes, false, OPSMITH_CALLER);
  touched_range(to, bytes, true, OPSMITH_CALLER);
  return std::memmove(to, from, bytes);
}
OPSMITH_EXPORTED void* __wrap_memset(void* to, int value, size_t bytes) {
  touched_range(to, bytes, true, OPSMITH_CALLER);
  return std::memset(to, value, bytes);
}

OPSMITH_EXPORTED void __tsan_vptr_update(void**, void*) {}
OPSMITH_EXPORTED void __tsan_vptr_read(void**) {}
OPSMITH_EXPORTED void __tsan_func_entry(void*) {}
OPSMITH_EXPORTED void __tsan_func_exit() {}
OPSMITH_EXPORTED void __tsan_init() {}

// --- What arithmetic and pointers are checked by ------------------------------------------------------------------

namespace {

void overflowed(const char* what, uintptr_t pc) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) worker->fail(signed_overflow, pc, what);
}

struct MismatchData {
  const char* file;
  uint32_t line, column;
  void* type;
  unsigned char log_alignment, kind;
};

}  // namespace

OPSMITH_EXPORTED void __ubsan_handle_add_overflow(void*, uintptr_t, uintptr_t) {
  overflowed("addition", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_sub_overflow(void*, uintptr_t, uintptr_t) {
  overflowed("subtraction", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_mul_overflow(void*, uintptr_t, uintptr_t) {
  overflowed("multiplication", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_negate_overflow(void*, uintptr_t) {
  overflowed("negation", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t divisor) {
  if (divisor != 0) return overflowed("division", OPSMITH_CALLER);
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) worker->fail(division_by_zero, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_type_mismatch_v1(MismatchData* data, uintptr_t pointer) {
  Worker* const worker = Worker::current;
  if (worker == nullptr || !worker->running_a_thread()) return;
  const uint32_t alignment = 1u << data->log_alignment;
  if (pointer % alignment == 0) return;
  worker->fail_misaligned(pointer, alignment, data->kind == 1, OPSMITH_CALLER);
}

}  // namespace opsmith::emulator
