// A product of matrices in tiles, on the stable ABI of torch.
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

constexpr int kTile = 16;

__global__ void matmul_kernel(const float* a, const float* b, float* c, int rows, int columns, int depth) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < depth; k += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * depth + k + threadIdx.x];  // expect: int32-index
    tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * columns + column];
    __syncthreads();
    for (int j = 0; j < kTile; ++j) sum += tile_a[threadIdx.y][j] * tile_b[j][threadIdx.x];
    __syncthreads();
  }
  c[row * columns + column] = sum;  // expect: missing-bounds-check
}

Tensor matmul(Tensor a, Tensor b, Tensor c) {
  STD_TORCH_CHECK(a.dim() == 2 && b.dim() == 2);  // expect: messageless-check
  STD_TORCH_CHECK(a.size(1) == b.size(0), "");    // expect: messageless-check
  const dim3 grid((b.size(1) + kTile - 1) / kTile, (a.size(0) + kTile - 1) / kTile);
  // expect on the next line: default-stream, empty-tensor, missing-device-guard, unchecked-launch
  matmul_kernel<<<grid, dim3(kTile, kTile), 0, nullptr>>>(
      static_cast<float*>(a.data_ptr()),  // expect: float-only
      static_cast<float*>(b.data_ptr()), static_cast<float*>(c.data_ptr()), a.size(0), b.size(1), a.size(1));
  return c;
}
