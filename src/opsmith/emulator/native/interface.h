// The interface between the emulator's runtime and the kernels compiled for it: plain C functions and structures.
//
// A kernel's library calls the functions; Python fills `Launch` and reads `Fault` (structures.py has the same layout).
#pragma once

#include <cstddef>
#include <cstdint>

namespace opsmith::emulator {

struct Dim {
  unsigned x, y, z;
};

// Memory that a kernel may touch: a tensor, a variable of the library.
struct Region {
  uintptr_t begin;
  uintptr_t end;
  uint32_t kind;    // RegionKind
  uint32_t number;  // which tensor or variable, for messages
};

enum RegionKind : uint32_t {
  tensor = 0,
  constant_variable = 1,
  device_variable = 2,
  shared_variable = 3,
  ignored_variable = 4,
  allocated_memory = 5,  // by kernels
};

enum FaultKind : int32_t {
  no_fault = 0,
  out_of_bounds = 1,
  shared_out_of_bounds = 2,
  misaligned = 3,
  uninitialised = 4,
  partial_barrier = 5,
  inactive_lane = 6,
  race = 7,
  signed_overflow = 8,
  hang = 9,
  failed_assertion = 10,
  write_to_constant = 11,
  bad_memory_access = 12,
  division_by_zero = 13,
  null_pointer = 14,
  no_resources = 15,  // the machine's, not the kernel's fault
  stack_overflow = 16,
  illegal_instruction = 17,
  uncaught_exception = 18,
  use_after_free = 19,
  bad_free = 20,
  partial_cluster_barrier = 21,
  absent_block = 22,  // whose shared memory a block of the cluster accesses
};

// In place of a fault's region: memory that a kernel allocated, or freed, at the code address `other`. `detail` is its
// size in bytes.
constexpr int64_t kAllocated = -2;

// `cluster` is the shared memory of another block of the cluster.
enum class Space : int32_t { global = 0, shared = 1, constant = 2, local = 3, cluster = 4 };

constexpr int kMostWaits = 8;

// A place where threads wait or another access was made.
struct Place {
  uintptr_t pc;
  Dim block, thread;
  uint32_t count;  // of threads that wait here
};

struct Fault {
  int32_t kind;
  int32_t is_write;
  uintptr_t pc;
  uintptr_t address;
  uint64_t size;
  Dim block, thread;
  int64_t region;       // index of the region concerned, or -1
  int64_t offset;       // bytes from its beginning
  uint32_t mask, lane;  // of a warp's operation
  int32_t has_other;
  Place other;  // the other access of a race
  int32_t waits;
  Place wait[kMostWaits];  // where threads wait, for barriers and hangs
  char detail[256];
};

// The seed that leaves blocks and threads in the order of their numbers.
constexpr uint64_t kInOrder = ~uint64_t{0};

using Entry = void (*)(void** arguments);

struct Launch {
  Entry entry;
  void** arguments;
  Dim grid, block;
  Dim cluster;  // in blocks; the grid is a multiple of it
  uint64_t shared_bytes;
  int32_t checks;
  int32_t workers;
  uint64_t seed;
  double seconds;  // until a launch is taken for one that hangs
  const Region* regions;
  uint64_t region_count;
  // The library's static __shared__ variables: offsets in its thread-local storage, from `shared_base`.
  const Region* shared_variables;
  uint64_t shared_variable_count;
  void* (*shared_base)();
  Fault* fault;
};

extern "C" {

// A launch that has begun and not yet ended; null otherwise.
class Run;

// The status of a launch that has not ended.
constexpr int32_t kRunning = -1, kPrinted = -2;

// Begins a launch, then as opsmith_await.
int32_t opsmith_begin(const Launch* launch, Run** run, double seconds);
// Waits for the end of a launch, no longer than some seconds: 0, or the kind of the fault that was written to
// launch.fault. kRunning if it has not ended, kPrinted if opsmith_printed has output to return.
int32_t opsmith_await(Run** run, double seconds);
// What kernels have printed since the last call. It is valid until the next one.
const char* opsmith_printed(Run* run, uint64_t* bytes);
// Ends a launch before its time, if there is one.
void opsmith_stop(Run** run);
// A launch as a whole: what opsmith_await returns at its end. What kernels print goes to the process's standard output.
int32_t opsmith_emulate(const Launch* launch);

Dim opsmith_thread_index() __attribute__((const));
Dim opsmith_block_index() __attribute__((const));
Dim opsmith_block_size() __attribute__((const));
Dim opsmith_grid_size() __attribute__((const));
Dim opsmith_cluster_size() __attribute__((const));
void* opsmith_dynamic_shared() __attribute__((const));
uint64_t opsmith_dynamic_shared_bytes() __attribute__((const));

// All threads of the block. `kind` is how the predicates of all are put together: 0 not at all, 1 and, 2 or, 3 count.
// `line` distinguishes barriers: those of one line are the same, however often the compiler has copied it.
int opsmith_barrier(int kind, int predicate, int line);

// The two steps of the barrier of a cluster. An arrival with `releases` 0 orders no memory accesses.
void opsmith_cluster_arrive(int releases);
void opsmith_cluster_wait();
// The address, in another block of the cluster, of what this block has at an address of its shared memory.
void* opsmith_map_shared(const void* address, uint32_t rank);
// The block of the cluster in whose shared memory the address is; ~0 where it is in none.
uint32_t opsmith_shared_rank(const void* address);

// The lanes of `mask`, each of which gives `bytes` and gets those of the lane it names; `kind` is for messages.
void opsmith_shuffle(uint32_t mask, void* value, uint32_t bytes, int source, int kind);
// The 8 bytes of every lane, in order; lanes outside of the mask are left as they are.
void opsmith_gather(uint32_t mask, uint64_t own, uint64_t* all, int kind);
void opsmith_sync_warp(uint32_t mask);
uint32_t opsmith_active_mask();

// To be called before an atomic operation: `kind` 0 is one that reads and writes, 1 only reads, 2 is compare-and-swap, 3
// only writes.
void opsmith_atomic_access(void* address, uint32_t bytes, int kind);
void opsmith_fence(int scope);  // 0 block, 1 device, 2 system
// Yields to other threads, in a loop that waits for them.
void opsmith_yield();
void opsmith_assertion_failed(const char* expression, const char* file, int line);
// What kind of memory an address is in.
Space opsmith_space(const void* address);
// As malloc, with an alignment.
void* opsmith_allocate(size_t bytes, size_t alignment);
uint64_t opsmith_clock();
}

}  // namespace opsmith::emulator
