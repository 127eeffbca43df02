// A program has the GPU to itself: it may use the default stream, and wait.
#include <cstdio>

__global__ void fill(float* x, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 1.0f;
}

int main() {
  float* x = nullptr;
  cudaMalloc(&x, 1000 * sizeof(float));
  fill<<<4, 256>>>(x, 1000);
  if (cudaGetLastError() != cudaSuccess) return 1;
  cudaDeviceSynchronize();
  cudaFree(x);
  return 0;
}
