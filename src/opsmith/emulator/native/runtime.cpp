// The emulator's runtime: the functions that Python, kernels and host code call. What the compiler and the linker put
// calls to is in instrumentation.h, atomics.h and allocation.h.

#include <cstdlib>

#include "allocation.h"
#include "atomics.h"
#include "exported.h"
#include "host.h"
#include "instrumentation.h"
#include "launches.h"

namespace opsmith::emulator {

// --- Launches -----------------------------------------------------------------------------------------------------

OPSMITH_EXPORTED int32_t opsmith_await(Run** run, double seconds) {
  const bool has_ended = (*run)->await(seconds);
  if ((*run)->has_printed()) return kPrinted;
  if (!has_ended) return kRunning;
  const int32_t kind = (*run)->write_fault();
  delete std::exchange(*run, nullptr);
  return kind;
}

OPSMITH_EXPORTED int32_t opsmith_begin(const Launch* launch, Run** run, double seconds) {
  *launch->fault = Fault{};
  try {
    *run = new Run(*launch);
  } catch (const std::exception& error) {
    launch->fault->kind = no_resources;
    std::snprintf(launch->fault->detail, sizeof(launch->fault->detail), "%s", error.what());
    return no_resources;
  }
  return opsmith_await(run, seconds);
}

OPSMITH_EXPORTED const char* opsmith_printed(Run* run, uint64_t* bytes) {
  const std::string& text = run->printed();
  *bytes = text.size();
  return text.data();
}

OPSMITH_EXPORTED void opsmith_stop(Run** run) {
  if (*run == nullptr) return;
  (*run)->stop();
  delete std::exchange(*run, nullptr);
}

OPSMITH_EXPORTED int32_t opsmith_emulate(const Launch* launch) {
  Run* run = nullptr;
  int32_t kind = opsmith_begin(launch, &run, 1.0);
  while (kind < 0) {
    if (kind == kPrinted) {
      const std::string& text = run->printed();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    }
    kind = opsmith_await(&run, 1.0);
  }
  return kind;
}

// --- What kernels call --------------------------------------------------------------------------------------------

OPSMITH_EXPORTED Dim opsmith_thread_index() { return Worker::current->thread_index(); }
OPSMITH_EXPORTED Dim opsmith_block_index() { return Worker::current->block_index(); }
OPSMITH_EXPORTED Dim opsmith_block_size() { return Worker::current->launch().block; }
OPSMITH_EXPORTED Dim opsmith_grid_size() { return Worker::current->launch().grid; }
OPSMITH_EXPORTED Dim opsmith_cluster_size() { return Worker::current->launch().cluster; }
OPSMITH_EXPORTED void* opsmith_dynamic_shared() {
  // A thread of host code may come here too, where its thread-local variable is initialised with those of the file.
  return Worker::current == nullptr ? nullptr : Worker::current->dynamic_shared();
}
OPSMITH_EXPORTED uint64_t opsmith_dynamic_shared_bytes() { return Worker::current->launch().shared_bytes; }

OPSMITH_EXPORTED int opsmith_barrier(int kind, int predicate, int line) {
  return Worker::current->barrier(kind, predicate, line, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_cluster_arrive(int releases) {
  Worker::current->cluster_barrier().arrive(releases != 0, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_cluster_wait() { Worker::current->cluster_barrier().wait(OPSMITH_CALLER); }
OPSMITH_EXPORTED void* opsmith_map_shared(const void* address, uint32_t rank) {
  const uintptr_t own = reinterpret_cast<uintptr_t>(address);
  return reinterpret_cast<void*>(Worker::current->neighbours().map(own, rank, OPSMITH_CALLER));
}
OPSMITH_EXPORTED uint32_t opsmith_shared_rank(const void* address) {
  return Worker::current->neighbours().rank_of(reinterpret_cast<uintptr_t>(address));
}
OPSMITH_EXPORTED void opsmith_shuffle(uint32_t mask, void* value, uint32_t bytes, int source, int) {
  Worker::current->warp().shuffle_values(mask, value, bytes, source, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_gather(uint32_t mask, uint64_t own, uint64_t* all, int kind) {
  Worker::current->warp().gather_values(mask, own, all, kind, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_sync_warp(uint32_t mask) { Worker::current->warp().synchronise(mask, OPSMITH_CALLER); }
OPSMITH_EXPORTED uint32_t opsmith_active_mask() { return Worker::current->warp().active_mask(OPSMITH_CALLER); }
OPSMITH_EXPORTED void opsmith_atomic_access(void* address, uint32_t bytes, int kind) {
  Worker::current->atomic_access(reinterpret_cast<uintptr_t>(address), bytes, kind, OPSMITH_CALLER);
}
OPSMITH_EXPORTED void opsmith_fence(int scope) { Worker::current->fence(scope); }
OPSMITH_EXPORTED void opsmith_yield() { Worker::current->yield(OPSMITH_CALLER); }
OPSMITH_EXPORTED uint64_t opsmith_clock() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

OPSMITH_EXPORTED int opsmith_print_values(const char* format, va_list values) {
  Worker* const worker = Worker::current;
  if (worker == nullptr) return std::vprintf(format, values);  // host code's own
  return worker->print(format, values, OPSMITH_CALLER);
}
OPSMITH_EXPORTED int opsmith_printf(const char* format, ...) {
  va_list values;
  va_start(values, format);
  Worker* const worker = Worker::current;
  const int length =
      worker == nullptr ? std::vprintf(format, values) : worker->print(format, values, OPSMITH_CALLER);
  va_end(values);
  return length;
}

namespace {

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line, uintptr_t pc) {
  if (Worker::current == nullptr) {  // host code's own
    std::fprintf(stderr, "%s:%d: Assertion `%s' failed.\n", file, line, expression);
    std::abort();
  }
  Worker::current->fail(failed_assertion, pc, expression);
}

}  // namespace

OPSMITH_EXPORTED void opsmith_assertion_failed(const char* expression, const char* file, int line) {
  assertion_failed(expression, file, line, OPSMITH_CALLER);
}
// The C library's, which the linker puts this for in an extension.
OPSMITH_EXPORTED void __wrap___assert_fail(const char* expression, const char* file, unsigned line, const char*) {
  assertion_failed(expression, file, static_cast<int>(line), OPSMITH_CALLER);
}

// --- What host code calls -----------------------------------------------------------------------------------------

namespace {

std::atomic<HostHook> host_hook{nullptr};
thread_local void* host_frame = nullptr;

}  // namespace

OPSMITH_EXPORTED void opsmith_set_host_hook(HostHook hook) { host_hook = hook; }
OPSMITH_EXPORTED LaunchResult opsmith_host_launch(HostLaunch* launch) { return host_hook.load()(launch); }
OPSMITH_EXPORTED void** opsmith_host_frame() { return &host_frame; }

}  // namespace opsmith::emulator
