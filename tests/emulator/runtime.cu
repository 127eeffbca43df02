// Kernels that try the emulator's runtime: they spin, recurse, throw, print, and ask where and when they are.
#include <sched.h>

#include <stdexcept>

// --- They never end -------------------------------------------------------------------------------------------------

__global__ void spins(int* x) {
  for (;;) {
  }
}

__global__ void computes(float* x) {
  float value = *x;
  for (;;) value = *x = sinf(value) + 1.0f;
}

__global__ void waits_for_a_volatile(volatile int* x) {
  while (*x == 0) {
  }
}

// Until the host says so, who finds the elements of a tensor in memory.
__global__ void waits_to_be_let_go(volatile int* has_begun, volatile int* may_go) {
  *has_begun = 1;
  while (*may_go == 0) {
  }
}

__global__ void meets_at_barriers(int* x) {
  for (;;) __syncthreads();
}

__global__ void meets_in_its_warp(int* x) {
  for (;;) __syncwarp();
}

__global__ void meets_itself(int* x) {
  for (;;) __syncwarp(1u << threadIdx.x % 32);
}

__global__ void prints_for_ever(int* x) {
  for (;;) printf("still here\n");
}

// One block is at fault while the others wait for it.
__global__ void leaves_others_waiting(volatile int* x) {
  if (blockIdx.x == 0) assert(*x == 1);
  while (*x == 0) {
  }
}

// --- Stacks ---------------------------------------------------------------------------------------------------------

__device__ int depth_of(int n) {
  volatile int here = n;
  return n == 0 ? 0 : depth_of(n - 1) + (here == n);
}

// Each thread is that deep when it comes to the barrier.
__device__ int barrier_at_depth(int n) {
  volatile int here = n;
  if (n == 0) {
    __syncthreads();
    return 0;
  }
  return barrier_at_depth(n - 1) + (here == n);
}

__global__ void recurses(int* x, int depth) { x[blockIdx.x * blockDim.x + threadIdx.x] = depth_of(depth); }

__global__ void waits_in_the_depth(int* x, int depth) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = barrier_at_depth(depth);
}

// As much as a GPU has for the arrays of a thread.
__global__ void has_a_large_array(int* x) {
  volatile unsigned char values[512 * 1024 - 64];
  for (int i = 0; i < sizeof(values); i += 1024) values[i] = threadIdx.x;
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < sizeof(values); i += 1024) sum += values[i];
  x[threadIdx.x] = sum;
}

__global__ void has_too_large_an_array(int* x, int i) {
  volatile int values[1024 * 1024];
  values[i] = 1;
  x[threadIdx.x] = values[i];
}

// --- Other ends -----------------------------------------------------------------------------------------------------

__global__ void throws(int* x) {
  if (threadIdx.x == 5) throw std::runtime_error("there is no such bin");
}

__global__ void comes_where_nobody_can(int* x) {
  if (threadIdx.x == 5) __builtin_trap();
}

__global__ void writes_to(int* x, int* y) {
  if (threadIdx.x == 3) *y = 1;
}

__global__ void divides_by(int* x, int n) { x[threadIdx.x] = 7 / n; }

// The last thing it does: the call could be a jump, which leaves no trace of where it came from.
__global__ void asserts_at_its_end(int* x) { assert(x[threadIdx.x] == 1); }

// --- Where and when -------------------------------------------------------------------------------------------------

__global__ void does_nothing() {}

__global__ void numbers_itself(int* blocks, int* threads) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int threads_of_a_block = blockDim.x * blockDim.y * blockDim.z;
  blocks[block * threads_of_a_block + thread] = block;
  threads[block * threads_of_a_block + thread] = thread;
}

__global__ void takes_time(long long* begin, long long* end, int nanoseconds) {
  begin[threadIdx.x] = clock64();
  while (clock64() - begin[threadIdx.x] < nanoseconds) {
  }
  end[threadIdx.x] = clock64();
}

__global__ void tells_its_core(int* core) { core[blockIdx.x] = sched_getcpu(); }

__global__ void halves(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * 0.5f; }

// --- Printing -------------------------------------------------------------------------------------------------------

__global__ void prints(int times) {
  for (int i = 0; i < times; ++i) printf("block %d, thread %d: %s\n", blockIdx.x, threadIdx.x, "said");
}

__global__ void prints_plainly() {
  printf("100%%\n");
  printf("a line\n");
  printf("%s\n", "another");
  printf("%c", '!');
}

__global__ void prints_a_long_line(const char* text) { printf("<%s>", text); }

__global__ void prints_before_it_fails(int* x) {
  printf("so far so good\n");
  assert(x[0] == 1);
}

// --- Shared memory --------------------------------------------------------------------------------------------------

extern __shared__ int at_file_scope[];

__global__ void turns_around(int* x) {
  at_file_scope[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = at_file_scope[blockDim.x - 1 - threadIdx.x];
}

// A flag of the block says nothing about other blocks, also where theirs has lain at the same place.
__global__ void releases_to_itself(int* x) {
  __shared__ int flag;
  if (threadIdx.x > 0) return;
  atomicExch(&flag, 0);
  x[0] = blockIdx.x;
  __threadfence();
  atomicExch(&flag, 1);
}
