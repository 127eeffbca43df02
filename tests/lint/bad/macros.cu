// Launches and checks in macros, and what a branch of the preprocessor has.
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#define LAUNCH(kernel, n, ...) kernel<<<(n + 255) / 256, 256>>>(__VA_ARGS__)  // expect: default-stream
#define CUDA_OK(call)                  \
  do {                                 \
    cudaError_t status = (call);       \
    TORCH_CHECK(status == cudaSuccess); /* expect: messageless-check */ \
  } while (0)

template <int kWidth>
__global__ void widen(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kWidth + threadIdx.x;
  if (i < n) y[i] = x[i];
}

#ifdef WITH_WIDE
void run(torch::Tensor x, torch::Tensor y, cudaStream_t stream) {
#else
void run(torch::Tensor x, torch::Tensor y) {
#endif
  TORCH_CHECK(x.scalar_type() == torch::kFloat32, "run: x must be float32, is ", x.scalar_type());
  const c10::cuda::OptionalCUDAGuard device_guard(device_of(x));
  const int64_t n = x.numel();
  if (n > 0) {
    LAUNCH(widen<256>, n, x.data_ptr<float>(), y.data_ptr<float>(), n);
#if CUDART_VERSION >= 12000
    widen<256><<<dim3((n + 255) / 256), 256, 0, cudaStreamPerThread>>>(  // expect: default-stream, unchecked-launch
        x.data_ptr<float>(), y.data_ptr<float>(), n);
#else
    widen<128><<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);  // expect: default-stream
#endif
  }
}
