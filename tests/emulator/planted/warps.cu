// Kernels with mistakes in what the lanes of a warp do together. The faulty line of each ends in `here`.

#define ALL 0xffffffffu

// [lanes_that_are_not_there]
__global__ void lanes_that_are_not_there(const float* x, float* y) {
  float sum = x[threadIdx.x];  // launched with 20 threads
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(0xffffffff, sum, offset);  // here
  }
  if (threadIdx.x == 0) *y = sum;
}
// [lanes_that_are_not_there]

__global__ void shuffle_in_a_branch(const float* x, float* y) {
  float value = x[threadIdx.x];
  if (threadIdx.x < 16) {
    value += __shfl_xor_sync(ALL, value, 1);  // here
  }
  y[threadIdx.x] = value;
}

// The mask is right, the lane read from is not among those it names.
__global__ void lane_outside_of_the_mask(const float* x, float* y) {
  float value = x[threadIdx.x];
  if (threadIdx.x < 16) {
    value += __shfl_xor_sync(0x0000ffffu, value, 16);  // here
  }
  y[threadIdx.x] = value;
}

__global__ void mask_without_the_caller(const float* x, float* y) {
  const float value = x[threadIdx.x];
  y[threadIdx.x] = __shfl_sync(0x0000ffffu, value, 0);  // here
}

// Those beyond the end have returned; their values are read all the same.
__global__ void shuffle_after_a_return(const float* x, float* y, int n) {
  if (threadIdx.x >= n) return;
  float sum = x[threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(ALL, sum, offset);  // here
  }
  if (threadIdx.x == 0) *y = sum;
}

__global__ void vote_in_a_branch(const int* x, unsigned* y) {
  unsigned positive = 0;
  if (x[threadIdx.x] > 0) {
    positive = __ballot_sync(ALL, x[threadIdx.x] > 1);  // here
  }
  y[threadIdx.x] = __match_any_sync(ALL, positive);  // here
}

// Some lanes shuffle where others wait for the block.
__global__ void barrier_for_some_lanes(const float* x, float* y) {
  float value = x[threadIdx.x];
  if (threadIdx.x % 2 == 0) {
    value = __shfl_sync(ALL, value, 0);  // here
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = value;
}

// Warp-synchronous code of the time before independent thread scheduling.
__global__ void missing_syncwarp(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x + 32];
  __syncwarp();
  for (int stride = 16; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) {
      tile[threadIdx.x] += tile[threadIdx.x + stride];  // here
    }
  }
  if (threadIdx.x == 0) *y = tile[0];
}

// The same with volatile, as it was taught then: it keeps values in memory, and lanes in no order.
__device__ void volatile_sum(volatile float* tile, unsigned lane) {
  tile[lane] += tile[lane + 16];  // here
  tile[lane] += tile[lane + 8];   // here
  tile[lane] += tile[lane + 4];   // here
  tile[lane] += tile[lane + 2];   // here
  tile[lane] += tile[lane + 1];   // here
}

__global__ void volatile_taken_for_a_fence(const float* x, float* y) {
  __shared__ float tile[48];
  tile[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 16) tile[threadIdx.x + 32] = 0.0f;
  __syncwarp();
  volatile_sum(tile, threadIdx.x);
  if (threadIdx.x == 0) *y = tile[0];
}

// A shuffle passes a value; it does not order what lanes do to memory.
__global__ void shuffle_taken_for_a_fence(const float* x, float* y) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];  // here
  const int partner = __shfl_xor_sync(ALL, static_cast<int>(threadIdx.x), 1);
  y[threadIdx.x] = tile[partner];  // here
}
