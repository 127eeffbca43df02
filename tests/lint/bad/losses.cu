// Sums by atomics, and values brought to the CPU to look at them.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>

__global__ void loss_kernel(const float* x, const float* target, float* loss, int64_t n) {
  __shared__ float block_sum;
  if (threadIdx.x == 0) block_sum = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&block_sum, (x[i] - target[i]) * (x[i] - target[i]));  // expect: float-atomics
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(loss, block_sum);  // expect: float-atomics
}

template <typename T>
__global__ void histogram(const int* bins, T* weights, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(weights + bins[i], T(1));  // expect: float-atomics
}

__global__ void half_sum(const __half* x, __half* sum, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, x[i]);  // expect: float-atomics
}

double loss(const at::Tensor& x, const at::Tensor& target, const at::Tensor& bins) {
  TORCH_CHECK(x.scalar_type() == at::kFloat, "loss: x must be float32, is ", x.scalar_type());
  const c10::cuda::CUDAGuard guard(x.device());
  auto stream = at::cuda::getCurrentCUDAStream();
  auto total = at::zeros({}, x.options());
  if (x.numel() == 0) return 0;
  const int64_t blocks = (x.numel() + 255) / 256;
  loss_kernel<<<blocks, 256, 0, stream>>>(
      x.data_ptr<float>(), target.data_ptr<float>(), total.data_ptr<float>(), x.numel());
  auto weights = at::zeros({16}, x.options());
  histogram<float><<<blocks, 256, 0, stream>>>(bins.data_ptr<int>(), weights.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  stream.synchronize();                         // expect: device-synchronise
  auto on_host = weights.cpu();                 // expect: device-synchronise
  auto also_there = weights.to(at::kCPU, true);  // expect: device-synchronise
  torch::cuda::synchronize();  // expect: device-synchronise
  return total.item<double>() / x.numel();  // expect: device-synchronise
}
