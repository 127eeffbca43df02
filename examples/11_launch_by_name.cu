// Kernels that 11_launch_by_name.cpp launches by name.

// [kernel]
// y = x / |x|, row by row. One block per row: a thread adds the squares of its columns, a warp its lanes by halves, and
// every thread the warps' sums, in one order.
template <typename T>
__global__ void normalize(const T* __restrict__ x, T* __restrict__ y, long long columns) {
  extern __shared__ float of_warps[];
  const T* row = x + blockIdx.x * columns;
  float sum = 0;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) sum += float(row[i]) * float(row[i]);
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warps[warp];
  T* out = y + blockIdx.x * columns;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) out[i] = float(row[i]) / sqrtf(sum);
}
// [kernel]
