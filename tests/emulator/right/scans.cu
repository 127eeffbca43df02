// Right kernels that scan, count and compact.
// opsmith: allow-file(int32-index): the emulator is given small tensors, and most kernels count in int

#define ALL 0xffffffffu
#define THREADS 256

// Every level reads one buffer and writes the other.
__global__ void hillis_steele(const int* x, int* y, int n) {
  extern __shared__ int buffers[];
  int* from = buffers;
  int* to = buffers + THREADS;
  const int t = threadIdx.x, i = blockIdx.x * THREADS + t;
  from[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int offset = 1; offset < THREADS; offset *= 2) {
    to[t] = t >= offset ? from[t] + from[t - offset] : from[t];
    __syncthreads();
    int* const former = from;
    from = to;
    to = former;
  }
  if (i < n) y[i] = from[t];
}

// Up the tree and down again, in place; exclusive. A thread has two elements.
__global__ void blelloch(const int* x, int* y, int n) {
  __shared__ int tree[2 * THREADS];
  const int t = threadIdx.x, begin = blockIdx.x * 2 * THREADS;
  for (int k = t; k < 2 * THREADS; k += THREADS) tree[k] = begin + k < n ? x[begin + k] : 0;
  int offset = 1;
  for (int pairs = THREADS; pairs > 0; pairs /= 2) {
    __syncthreads();
    if (t < pairs) tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
    offset *= 2;
  }
  if (t == 0) tree[2 * THREADS - 1] = 0;
  for (int pairs = 1; pairs <= THREADS; pairs *= 2) {
    offset /= 2;
    __syncthreads();
    if (t < pairs) {
      const int left = offset * (2 * t + 1) - 1, right = offset * (2 * t + 2) - 1;
      const int former = tree[left];
      tree[left] = tree[right];
      tree[right] += former;
    }
  }
  __syncthreads();
  for (int k = t; k < 2 * THREADS; k += THREADS) {
    if (begin + k < n) y[begin + k] = tree[k];
  }
}

__device__ int warp_scan(int value) {
  const int lane = threadIdx.x % 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(ALL, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

// Warps scan, the first warp scans the warps' sums, and everybody adds what came before.
__global__ void scan_by_warps(const int* x, int* y, int n) {
  __shared__ int of_warps[THREADS / 32];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, i = blockIdx.x * THREADS + t;
  int value = warp_scan(i < n ? x[i] : 0);
  if (lane == 31) of_warps[warp] = value;
  __syncthreads();
  if (warp == 0) {
    const int sum = warp_scan(lane < THREADS / 32 ? of_warps[lane] : 0);
    if (lane < THREADS / 32) of_warps[lane] = sum;
  }
  __syncthreads();
  if (warp > 0) value += of_warps[warp - 1];
  if (i < n) y[i] = value;
}

// A scan over all blocks in one launch: a block takes a number, waits for the one before it, and passes its sum on. `state`
// holds a block's sum plus one, 0 until it is there.
__global__ void chained_scan(const int* x, int* y, int* ticket, int* state, int n) {
  __shared__ int number, before, sums[THREADS];
  if (threadIdx.x == 0) number = atomicAdd(ticket, 1);
  __syncthreads();
  const int t = threadIdx.x, i = number * THREADS + t;
  sums[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int offset = 1; offset < THREADS; offset *= 2) {
    const int other = t >= offset ? sums[t - offset] : 0;
    __syncthreads();
    sums[t] += other;
    __syncthreads();
  }
  if (t == 0) {
    int sum = 0;
    if (number > 0) {
      while ((sum = atomicAdd(&state[number - 1], 0)) == 0) {
      }
      sum -= 1;
    }
    atomicExch(&state[number], sum + sums[THREADS - 1] + 1);
    before = sum;
  }
  __syncthreads();
  if (i < n) y[i] = before + sums[t];
}

// The same with flags that are volatile, in the way of before cuda::atomic: the fence stands between sum and flag.
__global__ void look_back(const int* x, int* y, int* ticket, volatile int* sums, volatile int* flags) {
  if (threadIdx.x == 0) {
    const int number = atomicAdd(ticket, 1);
    int sum = x[number];
    if (number > 0) {
      while (flags[number - 1] == 0) {
      }
      __threadfence();
      sum += sums[number - 1];
    }
    y[number] = sum;
    sums[number] = sum;
    __threadfence();
    flags[number] = 1;
  }
}

// --- Counting --------------------------------------------------------------------------------------------------------

__global__ void histogram_in_shared_memory(const int* x, int* y, int bins, int n) {
  extern __shared__ int own[];
  for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) own[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    if (own[bin] > 0) atomicAdd(&y[bin], own[bin]);
  }
}

__global__ void histogram_in_global_memory(const int* x, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&y[x[i]], 1);
}

// Lanes with the same bin find each other, and one of them counts for all.
__global__ void histogram_by_match(const int* x, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned taking_part = __ballot_sync(ALL, i < n);
  if (i >= n) return;
  const unsigned same = __match_any_sync(taking_part, x[i]);
  if (__ffs(same) - 1 == static_cast<int>(threadIdx.x % 32)) atomicAdd(&y[x[i]], __popc(same));
}

// --- Compaction ------------------------------------------------------------------------------------------------------

// Each warp takes as many places as it has elements to keep. The order of warps is left open.
__global__ void compaction_by_ballot(const float* x, float* y, int* count, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const bool keep = i < n && x[i] > 0.0f;
  const unsigned kept = __ballot_sync(ALL, keep);
  int first = 0;
  if (lane == 0 && kept != 0) first = atomicAdd(count, __popc(kept));
  first = __shfl_sync(ALL, first, 0);
  if (keep) y[first + __popc(kept & ((1u << lane) - 1))] = x[i];
}

// The same by those lanes that happen to be together in the branch.
__global__ void compaction_by_active_mask(const float* x, float* y, int* count, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  if (i < n && x[i] > 0.0f) {
    const unsigned together = __activemask();
    const int leader = __ffs(together) - 1;
    int first = 0;
    if (lane == leader) first = atomicAdd(count, __popc(together));
    first = __shfl_sync(together, first, leader);
    y[first + __popc(together & ((1u << lane) - 1))] = x[i];
  }
}

// --- Work that is distributed -------------------------------------------------------------------------------------------

// Blocks stay, and take the next row until there is none.
__global__ void persistent_rows(const float* x, float* y, int* next, int rows, int columns) {
  __shared__ int row;
  __shared__ float sum;
  for (;;) {
    if (threadIdx.x == 0) {
      row = atomicAdd(next, 1);
      sum = 0.0f;
    }
    __syncthreads();
    if (row >= rows) break;
    // opsmith: allow(float-atomics): compared within what the order of a sum can make
    for (int i = threadIdx.x; i < columns; i += blockDim.x) atomicAdd(&sum, x[row * columns + i]);
    __syncthreads();
    if (threadIdx.x == 0) y[row] = sum;
    __syncthreads();
  }
}

// CUDA has no atomicMax of floats. The first look is volatile: another thread may be changing the value.
__device__ float atomic_max(float* address, float value) {
  int* const bits = reinterpret_cast<int*>(address);
  int before = *const_cast<volatile int*>(bits), assumed;
  do {
    assumed = before;
    if (__int_as_float(assumed) >= value) break;
    before = atomicCAS(bits, assumed, __float_as_int(value));
  } while (assumed != before);
  return __int_as_float(before);
}

__global__ void maximum_by_compare_and_swap(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomic_max(y, x[i]);
}

// The loop of the CUDA programming guide: the first look is plain, and atomicCAS tells whether it was good.
__device__ double atomic_add(double* address, double value) {
  unsigned long long* const bits = reinterpret_cast<unsigned long long*>(address);
  unsigned long long before = *bits, assumed;
  do {
    assumed = before;
    before = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
  } while (assumed != before);
  return __longlong_as_double(before);
}

__global__ void sum_by_compare_and_swap(const double* x, double* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomic_add(y, x[i]);
}

// One thread a block at a time between lock and unlock.
__global__ void critical_section(const float* x, float* y, int* lock, int n) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  // opsmith: allow(float-atomics): compared within what the order of a sum can make
  if (i < n) atomicAdd(&sum, x[i]);
  __syncthreads();
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *y += sum;
    __threadfence();
    atomicExch(lock, 0);
  }
}

// Every thread of the block takes the lock, in the way that lanes of one warp can wait for each other.
__global__ void lock_of_every_thread(int* count, int* lock) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *count += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// One warp writes, another waits for its flag: no barrier of the block between them.
__global__ void warp_to_warp(const float* x, float* y) {
  __shared__ float tile[32];
  __shared__ int is_full;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) is_full = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    tile[lane] = x[lane];
    __syncwarp();
    if (lane == 0) {
      __threadfence_block();
      atomicExch(&is_full, 1);
    }
  } else {
    if (lane == 0) {
      while (atomicAdd(&is_full, 0) == 0) {
      }
      __threadfence_block();
    }
    __syncwarp();
    y[lane] = tile[31 - lane];
  }
}
