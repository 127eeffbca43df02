// elementwise_mult on a GPU: one thread per element, out[i] = a[i] * b[i].
#include "host.h"

namespace {

using opsmith::Tensor;

template <typename scalar, typename result>
__global__ void multiply_kernel(const scalar* a, const scalar* b, result* out, int64_t count) {
  using computed = elementwise_mult::computed<scalar>;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = static_cast<computed>(a[i]) * static_cast<computed>(b[i]);
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& out) {
  constexpr int64_t threads = 256;
  const int64_t count = out.numel();
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(a, "a", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::dispatch<scalar, elementwise_mult::computed<scalar>>(out, "out", [&](auto to) {
      using result = decltype(to);
      if (count == 0) return;
      opsmith::launch(
          multiply_kernel<scalar, result>, {opsmith::blocks_for(count, threads), threads}, out,
          opsmith::data<const scalar>(a), opsmith::data<const scalar>(b), opsmith::data<result>(out), count);
    });
  });
}

Tensor forward(Tensor a, Tensor b) { return elementwise_mult::forward(a, b, multiply); }

std::vector<Tensor> backward(std::optional<Tensor> grad, Tensor a, Tensor b, std::vector<bool> needs) {
  return elementwise_mult::backward(grad, a, b, needs, multiply);
}

}  // namespace

OPSMITH_EXPORT(elementwise_mult_forward, forward)
OPSMITH_EXPORT(elementwise_mult_backward, backward)
