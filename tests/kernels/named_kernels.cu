// Kernels that named_launches.cpp launches by name.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Pair {
  double first;
  int second;
};

namespace ns {
template <typename T, int Unroll>
__global__ void scale(const T* x, T* y, T factor, int count) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * Unroll;
  for (int u = 0; u < Unroll; ++u) {
    if (i + u < count) y[i + u] = x[i + u] * factor;
  }
}
}  // namespace ns

// Shared memory of any size, and the same from a second source of bytes.
__global__ void reversed(const float* x, float* y, int columns) {
  extern __shared__ float row[];
  row[threadIdx.x] = x[blockIdx.x * columns + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * columns + threadIdx.x] = row[columns - 1 - threadIdx.x];
}

// A parameter of each kind.
__global__ void kinds(float* out, signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f,
                      long long g, unsigned long long h, bool i, float j, double k, __half l, __nv_bfloat16 m, Pair n,
                      const float4* o, const void* p) {
  if (threadIdx.x == 0) {
    out[0] = a + b + c + d + e + f + float(g) + float(h) + i + j + float(k) + __half2float(l) + __bfloat162float(m) +
             float(n.first) + n.second + (o == nullptr ? 0.0f : o[0].w) + (p == nullptr);
  }
}

__global__ void __launch_bounds__(64) bounded(float* out) { out[threadIdx.x] = 1; }
