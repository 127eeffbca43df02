// A first extension, as tutorials have it: it gives right numbers on one GPU, on the default stream, for small tensors.
// [square]
#include <torch/extension.h>

__global__ void square_kernel(const float* x, float* y, int n) {  // expect: int32-index
  int i = blockIdx.x * blockDim.x + threadIdx.x;                  // expect: int32-index
  if (i < n) {
    y[i] = x[i] * x[i];
  }
}

torch::Tensor square(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();  // expect: int32-index
  int threads = 256;
  int blocks = (n + threads - 1) / threads;
  // expect on the next line: default-stream, empty-tensor, missing-device-guard, unchecked-launch, float-only
  square_kernel<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  cudaDeviceSynchronize();  // expect: device-synchronise
  return y;
}
// [square]

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("square", &square, "x * x");
}
