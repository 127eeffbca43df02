// Right kernels that use the language widely: vectors, half types, carved shared memory, lambdas, printf, clocks.
// opsmith: allow-file(int32-index): the emulator is given small tensors, and most kernels count in int

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void grid_stride(const float* __restrict__ x, float* __restrict__ y, float scale, long long n) {
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    y[i] = scale * x[i];
  }
}

// Four at a time, and what is left one at a time.
__global__ void copy_by_fours(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int fours = n / 4, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < fours) {
    __stcs(reinterpret_cast<float4*>(y) + i, __ldcs(reinterpret_cast<const float4*>(x) + i));
  } else if (const int k = 4 * fours + i - fours; k < n) {
    y[k] = __ldg(x + k);
  }
}

__global__ void half_pairs(const __half2* x, const __half2* y, __half2* z, int pairs) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < pairs) z[i] = __hfma2(x[i], y[i], __float2half2_rn(1.0f));
}

__global__ void bfloat16_axpy(const __nv_bfloat16* x, __nv_bfloat16* y, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2bfloat16(fmaf(a, __bfloat162float(x[i]), __bfloat162float(y[i])));
}

// A tile of half in shared memory, written in pairs and read one by one.
__global__ void half_tile(const __half* x, __half* y) {
  __shared__ __align__(16) __half tile[128];
  reinterpret_cast<__half2*>(tile)[threadIdx.x] = reinterpret_cast<const __half2*>(x)[threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.x; i < 128; i += blockDim.x) y[i] = tile[127 - i];
}

// Doubles, then floats, then bytes in one piece of dynamic shared memory, declared outside of the kernel.
extern __shared__ __align__(16) unsigned char memory[];

__global__ void carved(const double* x, const float* y, const unsigned char* z, double* out, int n) {
  double* const doubles = reinterpret_cast<double*>(memory);
  float* const floats = reinterpret_cast<float*>(doubles + n);
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(floats + n);
  const int t = threadIdx.x, i = blockIdx.x * n + t;
  doubles[t] = x[i];
  floats[t] = y[i];
  bytes[t] = z[i];
  __syncthreads();
  const int other = n - 1 - t;
  // opsmith: allow(missing-bounds-check): launched with a thread an element
  out[i] = doubles[other] + floats[other] + bytes[other];
}

template <typename Function>
__device__ float applied(Function function, float x) {
  return function(function(x));
}

__global__ void lambdas(const float* x, float* y, float shift, int n) {
  const auto bend = [shift](float value) { return tanhf(value + shift); };
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = applied(bend, x[i]);
}

__global__ void said(const float* x) {
  if (threadIdx.x == 3) printf("block %d has %.2f\n", blockIdx.x, x[blockIdx.x]);
}

__global__ void timed(const float* x, float* y, long long* ticks) {
  const long long start = clock64();
  y[threadIdx.x] = sqrtf(x[threadIdx.x]);
  __syncthreads();
  ticks[threadIdx.x] = clock64() - start;
}

__device__ unsigned long long launches;

// A variable of the device keeps what it holds from one launch to the next.
__global__ void counted(unsigned long long* y) {
  if (threadIdx.x == 0) *y = atomicAdd(&launches, 1ull);
}

// Collatz: every thread goes its own way for as long as it likes, and all meet again.
__global__ void divergent(const int* x, int* y) {
  __shared__ int steps[64];
  int value = x[threadIdx.x], taken = 0;
  while (value != 1) {
    value = value % 2 == 0 ? value / 2 : 3 * value + 1;
    ++taken;
  }
  steps[threadIdx.x] = taken;
  __syncthreads();
  y[threadIdx.x] = steps[63 - threadIdx.x];
}

// Hash functions overflow, in unsigned arithmetic, as they may.
__global__ void hashed(const unsigned* x, unsigned* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned value = x[i];
  value = (value ^ 61u) ^ (value >> 16);
  value *= 9u;
  value ^= value >> 4;
  value *= 0x27d4eb2du;
  y[i] = value ^ (value >> 15);
}

// One warp fills the buffer, the other empties it: both pass the same barriers, in branches that whole warps take.
__global__ void two_roles(const float* x, float* y, int tiles) {
  __shared__ float buffer[2][32];
  const int lane = threadIdx.x % 32;
  const bool fills = threadIdx.x < 32;
  for (int tile = 0; tile <= tiles; ++tile) {
    if (fills) {
      if (tile < tiles) buffer[tile % 2][lane] = x[32 * tile + lane];
    } else if (tile > 0) {
      y[32 * (tile - 1) + lane] = 2.0f * buffer[(tile - 1) % 2][31 - lane];
    }
    __syncthreads();
  }
}

// Unused output, absent input: null where nobody looks.
__global__ void optional_bias(const float* x, const float* bias, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = bias == nullptr ? x[i] : x[i] + bias[i];
}
