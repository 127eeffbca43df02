// An extension for opsmith: launch brings the guard, the stream and the check; OPSMITH_EXPORT the guard.
#include <opsmith/kernel.h>

using opsmith::Tensor;

constexpr int kThreads = 256;

template <typename scalar>
__global__ void scale(const scalar* x, scalar* y, double factor, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) y[i] = x[i] * scalar(factor);
}

Tensor scaled(Tensor x, double factor) {
  opsmith::expect(x, "x").cuda().dtype<float, double>().contiguous();
  Tensor y = opsmith::empty_like(x);
  const int64_t count = x.numel();
  if (count == 0) return y;
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::launch(
        scale<scalar>, {opsmith::blocks_for(count, kThreads), kThreads}, x, opsmith::data<const scalar>(x),
        opsmith::data<scalar>(y), factor, count);
  });
  return y;
}

Tensor scaled_by_hand(Tensor x, double factor) {
  opsmith::expect(x, "x").cuda().dtype<float>().contiguous();
  Tensor y = opsmith::empty_like(x);
  if (x.numel() == 0) return y;
  scale<float><<<opsmith::blocks_for(x.numel(), kThreads), kThreads, 0, opsmith::current_stream(x)>>>(
      opsmith::data<const float>(x), opsmith::data<float>(y), factor, x.numel());
  const cudaError_t status = cudaPeekAtLastError();
  if (status != cudaSuccess) opsmith::fail("scale was not launched: ", cudaGetErrorString(status));
  return y;
}

OPSMITH_EXPORT(scaled, scaled)
OPSMITH_EXPORT(scaled_by_hand, scaled_by_hand)
