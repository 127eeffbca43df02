// Kernels alone, as opsmith.cuda_source takes them: counted in 64 bits, checked, or within what a block can have.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define TILE 32
constexpr int kWarps = 8;

template <typename T, typename index_t>
__global__ void copied(const T* __restrict__ x, T* __restrict__ y, index_t n) {
  const index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

// A block a row; the row begins where 64 bits say.
__global__ void row_sums(const float* x, float* y, int64_t columns) {
  __shared__ float of_warps[kWarps];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, warp = thread / 32, lane = thread % 32;
  const float* row = x + blockIdx.x * columns;
  float sum = 0;
  for (int64_t i = thread; i < columns; i += blockDim.x * blockDim.y) sum += row[i];
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (thread == 0) {
    for (int other = 1; other < kWarps; ++other) sum += of_warps[other];
    y[blockIdx.x] = sum;
  }
}

// Rows and columns are numbered in 32 bits, elements in 64.
__global__ void transposed(const float* x, float* y, int rows, int columns) {
  __shared__ float tile[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[int64_t(row) * columns + column];
  __syncthreads();
  row = blockIdx.x * TILE + threadIdx.y;
  column = blockIdx.y * TILE + threadIdx.x;
  if (row < columns && column < rows) y[int64_t(row) * rows + column] = tile[threadIdx.x][threadIdx.y];
}

__global__ void counted(const float* x, unsigned long long* positive, int* of_block, int64_t n) {
  const auto block = cg::this_thread_block();
  const int64_t i = static_cast<long>(blockIdx.x) * block.size() + block.thread_rank();
  const int keep = i < n && x[i] > 0.0f;
  atomicAdd(positive, static_cast<unsigned long long>(keep));
  if (__syncthreads_count(keep) > 0 && block.thread_rank() == 0) of_block[blockIdx.x] = 1;
}

// Each thread reads the last pack again rather than branch.
__global__ void clamped(const float4* x, float4* y, int64_t packs) {
  const int64_t i = min(int64_t{blockIdx.x} * blockDim.x + threadIdx.x, packs - 1);
  y[i] = x[i];
}

struct Walk {
  int64_t count;
  __device__ explicit Walk(int64_t count) : count(count), step{int64_t{gridDim.x} * blockDim.x} {}
  __device__ bool has(int64_t i) const { return i < count; }
  int64_t step;
};

__global__ void walked(float* x, int64_t n) {
  const Walk walk(n);
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  while (walk.has(i)) {
    x[i] = 0;
    i += walk.step;
  }
}
