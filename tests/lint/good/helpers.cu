// Guard, emptiness, dtype and check in callers, helpers and macros of the same file.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#define CHECK_FLOAT(x) TORCH_CHECK(x.dtype() == torch::kFloat32, #x " must be float32, is ", x.dtype())
#define CHECK_INPUT(x)                                                       \
  TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor, is on ", x.device()); \
  CHECK_FLOAT(x)
#define CHECK_LAUNCH()                                                        \
  do {                                                                        \
    const cudaError_t status = cudaGetLastError();                            \
    TORCH_CHECK(status == cudaSuccess, "a launch failed: ", cudaGetErrorString(status)); \
  } while (0)

namespace {

__global__ void scale_kernel(const float* x, float* y, float factor, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i] * factor;
}

void run(const torch::Tensor& x, torch::Tensor& y, float factor) {
  const auto blocks = (x.numel() + 255) / 256;
  scale_kernel<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), factor, x.numel());
}

}  // namespace

torch::Tensor scale(const torch::Tensor& x, double factor) {
  CHECK_INPUT(x);
  auto y = torch::empty_like(x);
  if (x.numel() == 0) return y;
  const at::cuda::OptionalCUDAGuard device_guard(at::device_of(x));
  run(x, y, factor);
  CHECK_LAUNCH();
  return y;
}

torch::Tensor negated(const torch::Tensor& x) {
  CHECK_INPUT(x);
  const int64_t n = x.numel();
  auto y = torch::empty_like(x);
  const at::DeviceGuard guard(x.device());
  if (n > 0) {
    run(x, y, -1);
    AT_CUDA_CHECK(cudaGetLastError());
  }
  return y;
}
