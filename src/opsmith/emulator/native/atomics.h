// Atomic operations of instrumented code that are not CUDA's: std::atomic, and the counts of std::shared_ptr.
//
// -fsanitize=thread makes a call of each. Host code does the same as before; in a kernel the runtime is notified first.
#pragma once

#include "exported.h"
#include "worker.h"

namespace opsmith::emulator {

constexpr int kChanges = 0, kOnlyReads = 1, kCompares = 2, kOnlyWrites = 3;  // as opsmith_atomic_access takes them

inline void report_atomic(const volatile void* address, uint32_t bytes, int kind, uintptr_t pc) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) {
    worker->atomic_access(reinterpret_cast<uintptr_t>(address), bytes, kind, pc);
  }
}

}  // namespace opsmith::emulator

// Every requested memory order is treated as the strongest one.
#define OPSMITH_ATOMIC_CHANGE(bits, name)                                                                            \
  OPSMITH_EXPORTED uint##bits##_t __tsan_atomic##bits##_##name(                                                      \
      volatile uint##bits##_t* address, uint##bits##_t value, int) {                                                 \
    report_atomic(address, bits / 8, kChanges, OPSMITH_CALLER);                                                     \
    return __atomic_##name(address, value, __ATOMIC_SEQ_CST);                                                        \
  }

#define OPSMITH_ATOMIC_COMPARE(bits, name, weak)                                                                     \
  OPSMITH_EXPORTED int __tsan_atomic##bits##_compare_exchange_##name(                                                \
      volatile uint##bits##_t* address, uint##bits##_t* expected, uint##bits##_t value, int, int) {                  \
    report_atomic(address, bits / 8, kCompares, OPSMITH_CALLER);                                                    \
    return __atomic_compare_exchange_n(address, expected, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);          \
  }

#define OPSMITH_ATOMICS(bits)                                                                                        \
  OPSMITH_EXPORTED uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* address, int) {          \
    report_atomic(address, bits / 8, kOnlyReads, OPSMITH_CALLER);                                                   \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                               \
  }                                                                                                                  \
  OPSMITH_EXPORTED void __tsan_atomic##bits##_store(volatile uint##bits##_t* address, uint##bits##_t value, int) {   \
    report_atomic(address, bits / 8, kOnlyWrites, OPSMITH_CALLER);                                                  \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                              \
  }                                                                                                                  \
  OPSMITH_EXPORTED uint##bits##_t __tsan_atomic##bits##_exchange(                                                    \
      volatile uint##bits##_t* address, uint##bits##_t value, int) {                                                 \
    report_atomic(address, bits / 8, kChanges, OPSMITH_CALLER);                                                     \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                                  \
  OPSMITH_ATOMIC_CHANGE(bits, fetch_add)                                                                             \
  OPSMITH_ATOMIC_CHANGE(bits, fetch_sub)                                                                             \
  OPSMITH_ATOMIC_CHANGE(bits, fetch_and)                                                                             \
  OPSMITH_ATOMIC_CHANGE(bits, fetch_or)                                                                              \
  OPSMITH_ATOMIC_CHANGE(bits, fetch_xor)                                                                             \
  OPSMITH_ATOMIC_CHANGE(bits, fetch_nand)                                                                            \
  OPSMITH_ATOMIC_COMPARE(bits, strong, false)                                                                        \
  OPSMITH_ATOMIC_COMPARE(bits, weak, true)

namespace opsmith::emulator {

OPSMITH_ATOMICS(8)
OPSMITH_ATOMICS(16)
OPSMITH_ATOMICS(32)
OPSMITH_ATOMICS(64)

OPSMITH_EXPORTED void __tsan_atomic_thread_fence(int) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) worker->fence(1);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
OPSMITH_EXPORTED void __tsan_atomic_signal_fence(int) {}

}  // namespace opsmith::emulator

#undef OPSMITH_ATOMICS
#undef OPSMITH_ATOMIC_CHANGE
#undef OPSMITH_ATOMIC_COMPARE
