// Right kernels that reduce: over warps, blocks, rows and whole tensors; softmax and norms.
// opsmith: allow-file(int32-index): the emulator is given small tensors, and most kernels count in int

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <math_constants.h>

namespace cg = cooperative_groups;

#define ALL 0xffffffffu

__device__ __forceinline__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
  return value;
}

__device__ float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(ALL, value, offset));
  return value;
}

// The sum over the block, for every thread of it. Warps first, then one of them over what the warps have. The barrier
// at the beginning lets the function be called twice.
__device__ float block_sum(float value) {
  __shared__ float of_warps[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? of_warps[lane] : 0.0f);
}

// A warp a row.
__global__ void warp_reduction(const float* x, float* y, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;  // by whole warps
  float sum = 0.0f;
  for (int column = lane; column < columns; column += 32) sum += x[row * columns + column];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(ALL, sum, offset);
  if (lane == 0) y[row] = sum;
}

// The tree in shared memory, with a barrier a level; the last warp needs __syncwarp alone.
__global__ void block_reduction(const float* x, float* y, int n) {
  __shared__ float tile[256];
  const unsigned t = threadIdx.x;
  const int i = blockIdx.x * 256 + t;
  tile[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = 128; stride >= 32; stride /= 2) {
    if (t < stride) tile[t] += tile[t + stride];
    __syncthreads();
  }
  if (t < 32) {
    for (unsigned stride = 16; stride > 0; stride /= 2) {
      const float other = t < stride ? tile[t + stride] : 0.0f;
      __syncwarp();
      if (t < stride) tile[t] += other;
      __syncwarp();
    }
    if (t == 0) y[blockIdx.x] = tile[0];
  }
}

// The last block to finish adds up what all have left. `arrived` is 0 again when it ends.
__global__ void last_block_reduction(const float* x, float* partial, float* y, unsigned* arrived, int n) {
  __shared__ bool is_last;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last) {
    float total = 0.0f;
    for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x) total += partial[block];
    total = block_sum(total);
    if (threadIdx.x == 0) *y = total;
  }
}

// A block a row; the row's largest is taken off before exp.
__global__ void softmax(const float* x, float* y, int columns) {
  __shared__ float of_warps[32];
  x += static_cast<long long>(blockIdx.x) * columns;
  y += static_cast<long long>(blockIdx.x) * columns;
  float largest = -CUDART_INF_F;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, x[i]);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = warp_max(threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : -CUDART_INF_F);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(x[i] - largest);
  sum = block_sum(sum);
  const float scale = __fdividef(1.0f, sum);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = __expf(x[i] - largest) * scale;
}

// The row stays in dynamic shared memory between the three passes over it.
__global__ void layer_norm(
    const float* x, const float* weight, const float* bias, float* y, int columns, float epsilon) {
  extern __shared__ float row[];
  x += static_cast<long long>(blockIdx.x) * columns;
  y += static_cast<long long>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    row[i] = x[i];
    sum += row[i];
  }
  const float mean = block_sum(sum) / columns;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(block_sum(squares) / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = (row[i] - mean) * scale * weight[i] + bias[i];
}

__global__ void rms_norm(const float* x, const float* weight, float* y, int columns, float epsilon) {
  x += static_cast<long long>(blockIdx.x) * columns;
  y += static_cast<long long>(blockIdx.x) * columns;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += x[i] * x[i];
  const float scale = rsqrtf(block_sum(squares) / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = x[i] * scale * weight[i];
}

// Tiles of 8 reduce by shuffles of the group, then the block's first thread adds what they have.
__global__ void group_reduction(const float* x, float* y, int n) {
  __shared__ float of_tiles[32];
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int i = blockIdx.x * block.size() + block.thread_rank();
  const float sum = cg::reduce(tile, i < n ? x[i] : 0.0f, cg::plus<float>());
  if (tile.thread_rank() == 0) of_tiles[tile.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) {
    float total = 0.0f;
    for (unsigned rank = 0; rank < tile.meta_group_size(); ++rank) total += of_tiles[rank];
    y[blockIdx.x] = total;
  }
}

// Where the largest is: value and place travel together.
__global__ void argmax(const float* x, int* y, int columns) {
  struct Found {
    float value;
    int place;
  };
  __shared__ Found found[128];
  const int t = threadIdx.x;
  Found best = {-CUDART_INF_F, columns};
  for (int i = t; i < columns; i += 128) {
    const float value = x[blockIdx.x * columns + i];
    if (value > best.value) best = {value, i};
  }
  found[t] = best;
  __syncthreads();
  for (int stride = 64; stride > 0; stride /= 2) {
    if (t < stride) {
      const Found other = found[t + stride];
      if (other.value > found[t].value || (other.value == found[t].value && other.place < found[t].place)) {
        found[t] = other;
      }
    }
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = found[0].place;
}

// How many elements are above the mean of their block, by the barriers that count, and whether all and any are.
__global__ void counting_barriers(const float* x, int* y, float limit) {
  const int above = x[blockIdx.x * blockDim.x + threadIdx.x] > limit;
  const int count = __syncthreads_count(above), all = __syncthreads_and(above), any = __syncthreads_or(above);
  if (threadIdx.x == 0) y[blockIdx.x] = 4 * count + 2 * (all != 0) + (any != 0);
}
