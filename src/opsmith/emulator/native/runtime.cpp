// The emulator's runtime: starts the workers of a launch, serves the calls of kernels, catches what goes wrong.
//
// Kernels to be checked are compiled with -fsanitize=thread, by which the compiler emits a call before every load and
// store; the functions called are these, not the sanitizer's own. -fsanitize=signed-integer-overflow,alignment do the
// same for arithmetic and pointers.

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <thread>

#include "block.h"

#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default")))

namespace opsmith::emulator {

thread_local Worker* Worker::current = nullptr;

namespace {

#define OPSMITH_CALLER (reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1)

// --- Signals ----------------------------------------------------------------------------------------------------

int wake_signal() { return SIGRTMIN + 5; }

uintptr_t interrupted_at(void* context) {
#if defined(__x86_64__)
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

struct sigaction former[4];
const int watched[] = {SIGSEGV, SIGBUS, SIGFPE};

void on_signal(int number, siginfo_t* info, void* context) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) {
    if (number == wake_signal()) worker->fail_hang(interrupted_at(context));
    Fault fault{};
    fault.kind = number == SIGFPE ? division_by_zero : bad_memory_access;
    fault.pc = interrupted_at(context);
    fault.address = reinterpret_cast<uintptr_t>(info->si_addr);
    fault.region = -1;
    worker->fail(fault);
  }
  if (number == wake_signal()) return;
  for (int i = 0; i < 3; ++i) {
    if (watched[i] == number) sigaction(number, &former[i], nullptr);  // not a kernel's: as if we had not been here
  }
}

std::mutex signals_mutex;
int signals_in_use = 0;

struct Signals {
  Signals() {
    const std::lock_guard<std::mutex> lock(signals_mutex);
    if (signals_in_use++ > 0) return;
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 3; ++i) sigaction(watched[i], &action, &former[i]);
    sigaction(wake_signal(), &action, &former[3]);
  }
  ~Signals() {
    const std::lock_guard<std::mutex> lock(signals_mutex);
    if (--signals_in_use > 0) return;
    for (int i = 0; i < 3; ++i) sigaction(watched[i], &former[i], nullptr);
    sigaction(wake_signal(), &former[3], nullptr);
  }
};

// --- A launch ---------------------------------------------------------------------------------------------------

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  int left = 0;
};

void work(Shared& shared, Progress& progress) {
  // A stack of its own for signals: that of a kernel's thread may be what has overflowed.
  std::vector<char> stack(64 * 1024);
  stack_t description = {};
  description.ss_sp = stack.data();
  description.ss_size = stack.size();
  sigaltstack(&description, nullptr);
  try {
    Worker worker(shared);
    worker.run();
  } catch (const std::exception& error) {
    Fault fault{};
    fault.kind = hang;
    std::snprintf(fault.words, sizeof(fault.words), "%s", error.what());
    shared.report(fault);
  }
  description.ss_flags = SS_DISABLE;
  sigaltstack(&description, nullptr);
  const std::lock_guard<std::mutex> lock(progress.mutex);
  --progress.left;
  progress.changed.notify_all();
}

}  // namespace

OPSMITH_EXPORTED int32_t opsmith_emulate(const Launch* launch) {
  *launch->fault = Fault{};
  Shared shared(*launch);
  const Signals signals;
  Progress progress;
  const uint64_t wanted = launch->workers > 0 ? launch->workers : std::thread::hardware_concurrency();
  const int count = static_cast<int>(std::max<uint64_t>(1, std::min(wanted, shared.blocks)));
  progress.left = count;
  std::vector<std::thread> workers;
  for (int i = 0; i < count; ++i) workers.emplace_back(work, std::ref(shared), std::ref(progress));
  {
    std::unique_lock<std::mutex> lock(progress.mutex);
    const auto finished = [&] { return progress.left == 0; };
    if (!progress.changed.wait_for(lock, std::chrono::duration<double>(launch->seconds), finished)) {
      shared.late = true;  // those that look see it; the others are woken
      while (!progress.changed.wait_for(lock, std::chrono::milliseconds(500), finished)) {
        for (std::thread& worker : workers) pthread_kill(worker.native_handle(), wake_signal());
      }
    }
  }
  for (std::thread& worker : workers) worker.join();
  return launch->fault->kind;
}

// --- What kernels call --------------------------------------------------------------------------------------------

OPSMITH_EXPORTED Dim opsmith_thread_index() { return Worker::current->thread_index(); }
OPSMITH_EXPORTED Dim opsmith_block_index() { return Worker::current->block_index(); }
OPSMITH_EXPORTED Dim opsmith_block_size() { return Worker::current->launch().block; }
OPSMITH_EXPORTED Dim opsmith_grid_size() { return Worker::current->launch().grid; }
OPSMITH_EXPORTED void* opsmith_dynamic_shared() { return Worker::current->dynamic_shared(); }
OPSMITH_EXPORTED uint64_t opsmith_dynamic_shared_bytes() { return Worker::current->launch().shared_bytes; }

OPSMITH_EXPORTED int opsmith_barrier(int kind, int predicate, int line) {
  return Worker::current->barrier(kind, predicate, line, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_shuffle(uint32_t mask, void* value, uint32_t bytes, int source, int kind) {
  Worker::current->shuffle_values(mask, value, bytes, source, kind, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_gather(uint32_t mask, uint64_t own, uint64_t* all, int kind) {
  Worker::current->gather_values(mask, own, all, kind, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_sync_warp(uint32_t mask) { Worker::current->synchronise_warp(mask, OPSMITH_CALLER); }
OPSMITH_EXPORTED uint32_t opsmith_active_mask() { return Worker::current->active_mask(OPSMITH_CALLER); }
OPSMITH_EXPORTED void opsmith_atomic_access(void* address, uint32_t bytes, int kind) {
  Worker::current->atomic_access(reinterpret_cast<uintptr_t>(address), bytes, kind, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_fence(int scope) { Worker::current->fence(scope); }
OPSMITH_EXPORTED void opsmith_yield() { Worker::current->yield(OPSMITH_CALLER); }
OPSMITH_EXPORTED uint64_t opsmith_clock() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

OPSMITH_EXPORTED void opsmith_assertion_failed(const char* expression, const char* file, int line) {
  Fault fault{};
  fault.kind = failed_assertion;
  fault.pc = OPSMITH_CALLER;
  fault.region = -1;
  std::snprintf(fault.words, sizeof(fault.words), "%s", expression);
  Worker::current->fail(fault);
}

namespace {

inline void touched(void* address, uint32_t bytes, bool is_write, uintptr_t pc) {
  Worker* const worker = Worker::current;
  if (worker != nullptr && worker->running_a_thread()) {
    worker->access(reinterpret_cast<uintptr_t>(address), bytes, is_write, pc);
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
  touched(address, static_cast<uint32_t>(bytes), false, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __tsan_write_range(void* address, size_t bytes) {
  touched(address, static_cast<uint32_t>(bytes), true, OPSMITH_CALLER);
}
// Copies of a size known only at run time are calls of the C library, for which the linker puts these.
OPSMITH_EXPORTED void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    touched(const_cast<void*>(from), static_cast<uint32_t>(bytes), false, OPSMITH_CALLER);
    touched(to, static_cast<uint32_t>(bytes), true, OPSMITH_CALLER);
  }
  return std::memcpy(to, from, bytes);
}
OPSMITH_EXPORTED void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    touched(const_cast<void*>(from), static_cast<uint32_t>(bytes), false, OPSMITH_CALLER);
    touched(to, static_cast<uint32_t>(bytes), true, OPSMITH_CALLER);
  }
  return std::memmove(to, from, bytes);
}
OPSMITH_EXPORTED void* __wrap_memset(void* to, int value, size_t bytes) {
  if (bytes > 0) touched(to, static_cast<uint32_t>(bytes), true, OPSMITH_CALLER);
  return std::memset(to, value, bytes);
}

OPSMITH_EXPORTED void __tsan_vptr_update(void**, void*) {}
OPSMITH_EXPORTED void __tsan_vptr_read(void**) {}
OPSMITH_EXPORTED void __tsan_func_entry(void*) {}
OPSMITH_EXPORTED void __tsan_func_exit() {}
OPSMITH_EXPORTED void __tsan_init() {}

namespace {

struct OverflowData {
  const char* file;
  uint32_t line, column;
};

void overflowed(const OverflowData* data, const char* what, uintptr_t pc) {
  Worker* const worker = Worker::current;
  if (worker == nullptr || !worker->running_a_thread()) return;
  Fault fault{};
  fault.kind = signed_overflow;
  fault.pc = pc;
  fault.region = -1;
  std::snprintf(fault.words, sizeof(fault.words), "%s", what);
  worker->fail(fault);
}

struct MismatchData {
  const char* file;
  uint32_t line, column;
  void* type;
  unsigned char log_alignment, kind;
};

}  // namespace

OPSMITH_EXPORTED void __ubsan_handle_add_overflow(OverflowData* data, uintptr_t, uintptr_t) {
  overflowed(data, "addition", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_sub_overflow(OverflowData* data, uintptr_t, uintptr_t) {
  overflowed(data, "subtraction", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_mul_overflow(OverflowData* data, uintptr_t, uintptr_t) {
  overflowed(data, "multiplication", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_negate_overflow(OverflowData* data, uintptr_t) {
  overflowed(data, "negation", OPSMITH_CALLER);
}
OPSMITH_EXPORTED void __ubsan_handle_divrem_overflow(OverflowData* data, uintptr_t, uintptr_t divisor) {
  if (divisor != 0) return overflowed(data, "division", OPSMITH_CALLER);
  Worker* const worker = Worker::current;
  if (worker == nullptr || !worker->running_a_thread()) return;
  Fault fault{};
  fault.kind = division_by_zero;
  fault.pc = OPSMITH_CALLER;
  fault.region = -1;
  worker->fail(fault);
}
OPSMITH_EXPORTED void __ubsan_handle_type_mismatch_v1(MismatchData* data, uintptr_t pointer) {
  Worker* const worker = Worker::current;
  if (worker == nullptr || !worker->running_a_thread()) return;
  const uint32_t alignment = 1u << data->log_alignment;
  if (pointer % alignment == 0) return;
  worker->fail_memory(misaligned, pointer, alignment, data->kind == 1, OPSMITH_CALLER, -1);
}

}  // namespace opsmith::emulator
