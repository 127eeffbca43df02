// Just enough of CUDA for the drivers to run on the CPU, compiled by g++: one block after another, and in a block one
// thread after another, each up to its next barrier. Threads that do not all meet at every barrier end the process.
// Nothing of the C++ library is included: reading <functional> and <vector> takes as long as compiling a kernel.
#pragma once

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)

struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};
struct Dim3 {
  unsigned int x, y, z;
};

inline Dim3 threadIdx, blockIdx, gridDim;

template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}

namespace on_host {

constexpr int stack_bytes = 64 * 1024;

struct Thread {
  ucontext_t context;
  bool done;
  double lane_value;
};

inline ucontext_t scheduler;
inline Thread threads[1024];
inline unsigned int thread_count;
inline char* stacks;
inline void (*kernel)(void*);
inline void* argument;

inline void barrier() {
  Thread& own = threads[threadIdx.x];
  swapcontext(&own.context, &scheduler);
}

inline void enter() {
  kernel(argument);
  threads[threadIdx.x].done = true;
}

inline void run_block() {
  for (unsigned int index = 0; index < thread_count; ++index) {
    Thread& thread = threads[index];
    thread.done = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks + long(index) * stack_bytes;
    thread.context.uc_stack.ss_size = stack_bytes;
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, enter, 0);
  }
  for (bool done = false; !done;) {
    for (unsigned int index = 0; index < thread_count; ++index) {
      threadIdx = {index, 0, 0};
      swapcontext(&scheduler, &threads[index].context);
      if (index > 0 && threads[index].done != done) {
        std::fprintf(stderr, "thread %u is not at the barrier that thread 0 is at\n", index);
        std::abort();
      }
      done = threads[index].done;
    }
  }
}

template <class Body>
void launch(const long long* grid, int count, Body body) {
  kernel = [](void* given) { (*static_cast<Body*>(given))(); };
  argument = &body;
  thread_count = count;
  stacks = static_cast<char*>(std::malloc(long(count) * stack_bytes));
  gridDim = {static_cast<unsigned int>(grid[0]), static_cast<unsigned int>(grid[1]), 1};
  for (unsigned int y = 0; y < grid[1]; ++y) {
    for (unsigned int x = 0; x < grid[0]; ++x) {
      blockIdx = {x, y, 0};
      run_block();
    }
  }
  std::free(stacks);
}

}  // namespace on_host

inline void __syncthreads() { on_host::barrier(); }

inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned long long)(a) * b >> 32; }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(unsigned(value)); }

// Every lane of the warp must come here.
template <class T>
T __shfl_down_sync(unsigned int, T value, int delta, int width) {
  const int thread = threadIdx.x;
  on_host::threads[thread].lane_value = value;
  on_host::barrier();
  const bool inside = thread % width + delta < width;
  const T other = T(on_host::threads[inside ? thread + delta : thread].lane_value);
  on_host::barrier();
  return other;
}

template <class T>
T __shfl_xor_sync(unsigned int, T value, int mask) {
  const int thread = threadIdx.x;
  on_host::threads[thread].lane_value = value;
  on_host::barrier();
  const T other = T(on_host::threads[thread ^ mask].lane_value);
  on_host::barrier();
  return other;
}
