// Kernels with mistakes in their use of shared memory and barriers. The faulty line of each ends in `here`; of a race,
// the two lines of it, for either may be the later one.

#define THREADS 128

// --- Sizes ---------------------------------------------------------------------------------------------------------

// [dynamic_shared_too_small]
__global__ void dynamic_shared_too_small(const float* x, float* y) {
  extern __shared__ float tile[];      // launched with a byte a thread, not a float
  tile[threadIdx.x] = x[threadIdx.x];  // here
  __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
// [dynamic_shared_too_small]

__global__ void shared_array_past_its_end(const float* x, float* y) {
  __shared__ float tile[THREADS];
  tile[threadIdx.x + 1] = x[threadIdx.x];  // here
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

// What lies behind `row` may be `column`, and then nothing but the numbers is wrong.
__global__ void into_the_neighbour(const float* x, float* y) {
  __shared__ float row[THREADS];
  __shared__ float column[THREADS];
  row[threadIdx.x] = x[threadIdx.x];
  column[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i <= THREADS; ++i) {
    sum += row[i];  // here
  }
  for (int i = 0; i < THREADS; ++i) sum += column[i];
  y[threadIdx.x] = sum;
}

__global__ void before_the_shared_array(const float* x, float* y) {
  __shared__ float tile[THREADS];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[static_cast<int>(threadIdx.x) - 1];  // here
}

// --- What nobody has written -----------------------------------------------------------------------------------------

// [accumulator_never_zeroed]
__global__ void accumulator_never_zeroed(const float* x, float* y, int n) {
  __shared__ float sum;
  if (threadIdx.x == 0) {
    for (int i = 0; i < n; ++i) sum += x[i];  // here
    *y = sum;
  }
}
// [accumulator_never_zeroed]

__global__ void bins_never_zeroed(const int* x, int* y, int n) {
  __shared__ int bins[16];
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&bins[x[i] & 15], 1);  // here
  }
  __syncthreads();
  if (threadIdx.x < 16) y[threadIdx.x] = bins[threadIdx.x];
}

// The last block fills a part of the tile and sums it all.
__global__ void tile_half_filled(const float* x, float* y, int n) {
  __shared__ float tile[THREADS];
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  for (int stride = THREADS / 2; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) {
      tile[threadIdx.x] += tile[threadIdx.x + stride];  // here
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = tile[0];
}

// --- Missing barriers ------------------------------------------------------------------------------------------------

// [missing_barrier]
__global__ void missing_barrier(const float* x, float* y) {
  __shared__ float tile[THREADS];
  tile[threadIdx.x] = x[threadIdx.x];                // here
  y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];  // here
}
// [missing_barrier]

// Barrier between write and read, none between the read and the next turn's write.
__global__ void missing_second_barrier(const float* x, float* y, int tiles) {
  __shared__ float tile[THREADS];
  float sum = 0.0f;
  for (int t = 0; t < tiles; ++t) {
    tile[threadIdx.x] = x[t * THREADS + threadIdx.x];  // here
    __syncthreads();
    for (int i = 0; i < THREADS; ++i) {
      sum += tile[i];  // here
    }
  }
  y[threadIdx.x] = sum;
}

// The halo is loaded after the barrier.
__global__ void stale_halo(const float* x, float* y, int n) {
  __shared__ float tile[THREADS + 2];
  const int i = blockIdx.x * THREADS + threadIdx.x;
  tile[threadIdx.x + 1] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (threadIdx.x == 0) {
    tile[0] = i > 0 ? x[i - 1] : 0.0f;
    tile[THREADS + 1] = i + THREADS < n ? x[i + THREADS] : 0.0f;  // here
  }
  if (i < n) {
    y[i] = tile[threadIdx.x] + tile[threadIdx.x + 1] + tile[threadIdx.x + 2];  // here
  }
}

__global__ void tree_without_barriers(const float* x, float* y) {
  __shared__ float tile[THREADS];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  for (int stride = THREADS / 2; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) {
      tile[threadIdx.x] += tile[threadIdx.x + stride];  // here
    }
  }
  if (threadIdx.x == 0) *y = tile[0];
}

// Every thread writes the block's result, and a different one.
__global__ void everybody_writes_the_sum(const float* x, float* y) {
  __shared__ float sum;
  sum = x[threadIdx.x];  // here
  __syncthreads();
  y[threadIdx.x] = sum;
}

// Two shorts share a word of four bytes: the neighbour's write must not hide this one.
__global__ void missing_barrier_on_shorts(const short* x, short* y) {
  __shared__ short tile[THREADS];
  tile[threadIdx.x] = x[threadIdx.x];  // here
  y[threadIdx.x] = tile[0];            // here
}

// --- Barriers that not all threads reach -----------------------------------------------------------------------------

// [barrier_in_a_branch]
__global__ void barrier_in_a_branch(const float* x, float* y) {
  __shared__ float tile[64];
  if (threadIdx.x < 64) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // here
    y[threadIdx.x] = tile[63 - threadIdx.x];
  }
}
// [barrier_in_a_branch]

__global__ void return_before_a_barrier(const float* x, float* y, int n) {
  __shared__ float tile[THREADS];
  if (threadIdx.x >= n) return;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();  // here
  y[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

// Threads go round a different number of times.
__global__ void barrier_in_an_uneven_loop(const float* x, float* y, int n) {
  __shared__ float tile[THREADS];
  for (int i = threadIdx.x; i < n; i += THREADS) {
    tile[threadIdx.x] = x[i];
    __syncthreads();  // here
    y[i] = tile[threadIdx.x];
  }
}

// As many barriers for each thread, but not the same ones: a branch must go one way for the whole block.
__global__ void a_barrier_in_each_branch(const float* x, float* y) {
  __shared__ float tile[THREADS];
  if (threadIdx.x < 64) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // here
  } else {
    tile[threadIdx.x] = 2.0f * x[threadIdx.x];
    __syncthreads();  // here
  }
  y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}
