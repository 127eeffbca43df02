// An op that adds 2 to what it is given, and a schema that does not say so.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

__global__ void add_two_kernel(float* x, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 2.0f;
}

at::Tensor add_two(at::Tensor x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat, "add_two: x must be float32, is ", x.scalar_type());
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t n = x.numel();
  if (n == 0) return x;
  add_two_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), n);  // expect: undeclared-mutation
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return x;
}

at::Tensor clamp_rows(const at::Tensor& x, const at::Tensor& limit) {
  limit.clamp_(0);  // expect: undeclared-mutation
  return x.minimum(limit);
}

TORCH_LIBRARY(mylib, m) {
  m.def("add_two(Tensor x) -> Tensor");
  m.def("clamp_rows(Tensor x, Tensor limit) -> Tensor", TORCH_FN(clamp_rows));
}

TORCH_LIBRARY_IMPL(mylib, CUDA, m) {
  m.impl("add_two", &add_two);
}
