// Kernels whose blocks and threads get into each other's way in global memory. The faulty lines end in `here`: of a
// race, both, for either may be the later one.

// [race_on_a_sum]
__global__ void race_on_a_sum(const float* x, float* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *sum += x[i];  // here
}
// [race_on_a_sum]

__global__ void histogram_in_shared_memory(const int* x, int* y, int n) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    bins[x[i]] += 1;  // here
  }
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}

__global__ void histogram_in_global_memory(const int* x, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) bins[x[i]]++;  // here
}

// The block's number is left out of the index.
__global__ void two_blocks_in_one_place(const float* x, float* y) {
  y[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];  // here
}

// In place, and a neighbour across the end of the block has been changed or has not.
__global__ void stencil_in_place(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0 || i + 1 >= n) return;
  const float mean = 0.5f * (x[i - 1] + x[i + 1]);  // here
  x[i] = mean;                                      // here
}

// A matrix transposed in place by all threads, not by those above the diagonal alone.
__global__ void transpose_in_place(float* matrix, int n) {
  const int row = threadIdx.y, column = threadIdx.x;
  const float mine = matrix[row * n + column];          // here
  matrix[row * n + column] = matrix[column * n + row];  // here
  matrix[column * n + row] = mine;                      // here
}

// The last block to come sums the partial sums. Without a fence it may not see them.
__global__ void last_block_without_a_fence(const float* x, float* partial, float* y, unsigned* arrived) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int i = 0; i < blockDim.x; ++i) sum += x[blockIdx.x * blockDim.x + i];
    partial[blockIdx.x] = sum;  // here
    is_last = atomicAdd(arrived, 1u) + 1 == gridDim.x;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    float sum = 0.0f;
    for (int block = 0; block < gridDim.x; ++block) {
      sum += partial[block];  // here
    }
    *y = sum;
  }
}

// Counted atomically, looked at as if nobody else did.
__global__ void atomic_and_plain(int* count, int* y) {
  atomicAdd(count, 1);                  // here
  if (*count == 1) y[threadIdx.x] = 1;  // here
}

// Each thread takes the next place: two may take the same one.
__global__ void compaction_without_atomics(const float* x, float* y, int* count, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0.0f) {
    const int place = *count;  // here
    *count = place + 1;        // here
    y[place] = x[i];
  }
}
