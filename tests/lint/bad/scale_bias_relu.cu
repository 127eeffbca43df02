// A fused op with its backward, behind the macros that everybody copies.
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

#define CHECK_CUDA(x) AT_ASSERT(x.is_cuda())              // expect: messageless-check
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous())  // expect: messageless-check
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  CHECK_CONTIGUOUS(x)

template <typename scalar_t>
__global__ void forward_kernel(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ bias, scalar_t* __restrict__ out, float scale,
    int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y;
  if (column < columns) {
    const scalar_t value = x[row * columns + column] * scale + bias[column];  // expect: int32-index
    out[row * columns + column] = value > 0 ? value : scalar_t(0);
  }
}

template <typename scalar_t>
__global__ void backward_kernel(
    const scalar_t* grad, const scalar_t* out, scalar_t* grad_x, scalar_t* grad_bias, float scale, size_t size,
    size_t columns) {
  const size_t index = blockIdx.x * blockDim.x + threadIdx.x;  // expect: int32-index
  if (index >= size) return;
  const scalar_t passed = out[index] > 0 ? grad[index] : scalar_t(0);
  grad_x[index] = passed * scale;
  atomicAdd(&grad_bias[index % columns], passed);  // expect: float-atomics
}

torch::Tensor forward(torch::Tensor x, torch::Tensor bias, double scale) {
  CHECK_INPUT(x);
  CHECK_INPUT(bias);
  assert(x.dim() == 2);  // expect: messageless-check
  auto out = torch::empty_like(x);
  const int rows = x.size(0), columns = x.size(1);
  const dim3 grid((columns + 255) / 256, rows);  // expect: no-grid-limit
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale_bias_relu", ([&] {
    // expect on the next line: empty-tensor, missing-device-guard
    forward_kernel<scalar_t><<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), scale, rows, columns);
  }));
  AT_CUDA_CHECK(cudaGetLastError());
  return out;
}

std::vector<torch::Tensor> backward(torch::Tensor grad, torch::Tensor out, double scale) {
  CHECK_INPUT(grad);
  auto grad_x = torch::empty_like(grad);
  auto grad_bias = torch::zeros({grad.size(1)}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "scale_bias_relu_backward", ([&] {
    // expect on the next line: empty-tensor, missing-device-guard, unchecked-launch
    backward_kernel<scalar_t><<<(grad.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        grad.contiguous().data_ptr<scalar_t>(),  // expect: contiguous-temporary
        out.data_ptr<scalar_t>(), grad_x.data_ptr<scalar_t>(), grad_bias.data_ptr<scalar_t>(), scale, grad.numel(),
        grad.size(1));
  }));
  return {grad_x, grad_bias};
}
