"""CUDA sources that the tests of extensions build."""

# Launched as the caller says: what may go wrong is the caller's.
LAUNCHED = r"""
#include <opsmith/kernel.h>

using opsmith::Tensor;

template <typename scalar>
__global__ void doubled(const scalar* x, scalar* out, int count, int shared_bytes) {
  extern __shared__ char bytes[];
  if (shared_bytes > 0) bytes[shared_bytes - 1] = 1;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = x[i] + x[i];
}

Tensor launched(Tensor x, int64_t grid, int64_t block, int64_t shared_bytes, int64_t count) {
  opsmith::expect(x, "x").cuda().contiguous();
  Tensor out = opsmith::empty_like(x);
  const opsmith::DeviceGuard guard(x);
  const opsmith::Stream stream = opsmith::current_stream(x);
  opsmith::dispatch<float, opsmith::half>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::launch(doubled<scalar>, {grid, block, shared_bytes}, stream, opsmith::data<const scalar>(x),
                    opsmith::data<scalar>(out), count, shared_bytes);
  });
  return out;
}

OPSMITH_EXPORT(launched_kernel, launched)
"""

# square and its gradient: host code in four steps.
SQUARE = r"""
#include <opsmith/kernel.h>

using opsmith::Tensor;

template <typename scalar>
__global__ void product_kernel(const scalar* x, const scalar* y, scalar* out, double factor, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  using computed = std::conditional_t<sizeof(scalar) == 2, float, scalar>;
  if (i < count) out[i] = static_cast<computed>(factor) * static_cast<computed>(x[i]) * static_cast<computed>(y[i]);
}

Tensor product(const Tensor& x, const Tensor& y, double factor) {
  opsmith::expect(x, "x").cuda().contiguous();
  opsmith::expect(y, "y").same_device(x, "x").same_dtype(x, "x").same_shape(x, "x").contiguous();
  Tensor out = opsmith::empty_like(x);
  if (x.numel() == 0) return out;
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::launch(product_kernel<scalar>, {opsmith::blocks_for(x.numel(), 256), 256}, x,
                    opsmith::data<const scalar>(x), opsmith::data<const scalar>(y), opsmith::data<scalar>(out), factor,
                    x.numel());
  });
  return out;
}

Tensor square(Tensor x) { return product(x, x, 1); }

std::vector<Tensor> square_backward(std::optional<Tensor> grad, Tensor x, std::vector<bool> needs) {
  return {product(*grad, x, 2)};
}

OPSMITH_EXPORT(square_cuda, square)
OPSMITH_EXPORT(square_cuda_backward, square_backward)
"""
