// elementwise_mult on the CPU: out[i] = a[i] * b[i], the elements split among torch's threads.
#include "host.h"

namespace {

using opsmith::Tensor;

constexpr int64_t kGrain = 32768;  // elements that are not worth another thread

void multiply(const Tensor& a, const Tensor& b, const Tensor& out) {
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(a, "a", [&](auto zero) {
    using scalar = decltype(zero);
    using computed = elementwise_mult::computed<scalar>;
    opsmith::dispatch<scalar, computed>(out, "out", [&](auto result) {
      const auto* left = opsmith::data<const scalar>(a);
      const auto* right = opsmith::data<const scalar>(b);
      auto* to = opsmith::data<decltype(result)>(out);
      opsmith::parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = static_cast<computed>(left[i]) * static_cast<computed>(right[i]);
      });
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
