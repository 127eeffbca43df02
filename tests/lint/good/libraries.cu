// Thrust, CUB and CUDA's own calls on the stream of the caller.
#include <cub/cub.cuh>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/sort.h>

void sort(float* keys, int64_t n, cudaStream_t stream) {
  thrust::sort(thrust::cuda::par.on(stream), keys, keys + n);
  const auto policy = thrust::cuda::par_nosync.on(stream);
  thrust::sequence(policy, keys, keys + n);
  thrust::host_vector<float> on_host(n);
  thrust::sort(on_host.begin(), on_host.end());
  thrust::sort(thrust::host, on_host.data(), on_host.data() + n);
}

void largest(void* workspace, size_t bytes, const float* x, float* y, int64_t n, cudaStream_t stream) {
  cub::DeviceReduce::Max(workspace, bytes, x, y, n, stream);
  cudaMemsetAsync(y, 0, sizeof(float), stream);
  cudaMemcpyAsync(y, x, sizeof(float), cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cooperative(void** arguments, cudaStream_t stream) {
  return cudaLaunchCooperativeKernel((void*)largest_kernel, dim3(64), dim3(256), arguments, 0, stream);
}
