// examples::rms_norm on the CPU: rows are split among torch's threads.
// [cpp]
#include <opsmith/kernel.h>

#include <cmath>

using opsmith::Tensor;

Tensor rms_norm_on_cpu(Tensor x, double eps) {
  opsmith::expect(x, "x").cpu().dims(2).contiguous();
  Tensor out = opsmith::empty_like(x);
  const int64_t columns = x.size(1);
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::parallel_for(x.size(0), /*grain=*/64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const scalar* in = opsmith::data<const scalar>(x) + row * columns;
        scalar* to = opsmith::data<scalar>(out) + row * columns;
        scalar sum = 0;
        for (int64_t i = 0; i < columns; ++i) sum += in[i] * in[i];
        const scalar factor = 1 / std::sqrt(sum / columns + static_cast<scalar>(eps));
        for (int64_t i = 0; i < columns; ++i) to[i] = in[i] * factor;
      }
    });
  });
  return out;
}

OPSMITH_EXPORT(rms_norm_cpu, rms_norm_on_cpu)
// [cpp]
