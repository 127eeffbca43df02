// Right kernels that are templates, over types and numbers.
// opsmith: allow-file(int32-index): the emulator is given small tensors, and most kernels count in int

// A thread has VALUES neighbours in registers; OPERATION is chosen when compiled.
template <typename T, int VALUES, bool SQUARE>
__global__ void unrolled_sum(const T* __restrict__ x, T* __restrict__ y, int n) {
  const int begin = (blockIdx.x * blockDim.x + threadIdx.x) * VALUES;
  T values[VALUES];
#pragma unroll
  for (int k = 0; k < VALUES; ++k) values[k] = begin + k < n ? x[begin + k] : T(0);
  T sum = T(0);
#pragma unroll
  for (int k = 0; k < VALUES; ++k) {
    if constexpr (SQUARE) {
      sum += values[k] * values[k];
    } else {
      sum += values[k];
    }
  }
  if (begin < n) y[begin / VALUES] = sum;
}

template <typename T, unsigned THREADS>
__global__ void __launch_bounds__(THREADS) block_maximum(const T* x, T* y, int n) {
  __shared__ T tile[THREADS];
  T best = x[0];
  for (int i = threadIdx.x; i < n; i += THREADS) best = x[i] > best ? x[i] : best;
  tile[threadIdx.x] = best;
  __syncthreads();
#pragma unroll
  for (unsigned stride = THREADS / 2; stride > 0; stride /= 2) {
    if (threadIdx.x < stride && tile[threadIdx.x + stride] > tile[threadIdx.x]) {
      tile[threadIdx.x] = tile[threadIdx.x + stride];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *y = tile[0];
}
