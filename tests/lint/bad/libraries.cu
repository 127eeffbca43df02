// Thrust and CUB go to the default stream unless given another.
#include <cub/cub.cuh>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <torch/extension.h>

void sort(torch::Tensor keys, torch::Tensor values) {
  TORCH_CHECK(keys.dtype() == torch::kFloat32, "sort: keys must be float32, are ", keys.dtype());
  thrust::device_ptr<float> first(keys.data_ptr<float>());
  thrust::device_ptr<int> places(values.data_ptr<int>());
  thrust::sort_by_key(first, first + keys.numel(), places);                  // expect: default-stream
  thrust::sort(thrust::device, first, first + keys.numel());                 // expect: default-stream
  thrust::device_vector<float> copy(first, first + keys.numel());
  const float sum = thrust::reduce(copy.begin(), copy.end());                // expect: default-stream
  thrust::fill(thrust::cuda::par_nosync, copy.begin(), copy.end(), sum);     // expect: default-stream
}

void largest(const float* x, float* y, int n) {
  void* workspace = nullptr;
  size_t bytes = 0;
  cub::DeviceReduce::Max(workspace, bytes, x, y, n);
  cudaMalloc(&workspace, bytes);
  cub::DeviceReduce::Max(workspace, bytes, x, y, n);  // expect: default-stream
  cudaFree(workspace);                                // expect: device-synchronise
}

void configured(float* x, int n) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 64;
  config.blockDim = 256;
  auto status = cudaLaunchKernelEx(&config, scale_kernel, x, n);  // expect: default-stream
  TORCH_CHECK(status == cudaSuccess, "configured: ", cudaGetErrorString(status));
}
