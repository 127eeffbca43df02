// Host code that launches the kernels of named_kernels.cu by name. Tests build it for the emulator and for a fake driver.
#ifdef AS_ON_GPU
#include "as_on_gpu.h"
#endif

#include <opsmith/kernel.h>

using opsmith::Tensor;

namespace {

struct Pair {
  double first;
  int second;
};

Tensor scaled(Tensor x, double factor, int64_t extra) {
  opsmith::expect(x, "x").cuda().contiguous();
  if (factor == 13) opsmith::decline();
  Tensor out = opsmith::empty_like(x);
  if (x.numel() == 0) return out;
  const int64_t count = x.numel() + extra;
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    const char* const name = sizeof(scalar) == 4 ? "ns::scale<float, 4>" : "ns::scale< double,2 >";
    opsmith::launch(name, {opsmith::blocks_for(x.numel(), 128), 64}, x, opsmith::data<const scalar>(x),
                    opsmith::data<scalar>(out), factor, count);
  });
  return out;
}

std::vector<Tensor> scaled_backward(std::optional<Tensor> grad, double factor, std::vector<bool> needs) {
  return {scaled(*grad, factor, 0)};
}

Tensor reversed(Tensor x, int64_t block, int64_t shared_bytes) {
  Tensor out = opsmith::empty_like(x);
  opsmith::launch("reversed", {{x.size(0), 1, 1}, block, shared_bytes}, opsmith::current_stream(x),
                  opsmith::data<const float>(x), opsmith::data<float>(out), x.size(1));
  return out;
}

Tensor kinds(Tensor x, int64_t a, int64_t e, double j) {
  Tensor out = opsmith::empty<float>(x, {1});
  opsmith::launch("kinds", {1, 32}, x, opsmith::data<float>(out), a, uint8_t{200}, -300, 40000, e, 7u, -8L,
                  uint64_t{9}, true, j, 0.1f, opsmith::half(1.5f), 2.75, Pair{3.5, 4}, opsmith::data<const float>(x),
                  nullptr);
  return out;
}

// Mistakes, by number.
Tensor mistaken(Tensor x, int64_t which) {
  Tensor out = opsmith::empty_like(x);
  const auto* in = opsmith::data<const float>(x);
  auto* to = opsmith::data<float>(out);
  const char* const scale = "ns::scale<float, 4>";
  switch (which) {
    case 0: opsmith::launch(scale, {1, 64}, x, in, to, 2.0); break;
    case 1: opsmith::launch(scale, {1, 64}, x, to, in, 2.0, 1); break;
    case 2: opsmith::launch(scale, {1, 64}, x, in, to, 2.0, 1.0); break;
    case 3: opsmith::launch(scale, {1, 64}, x, in, 7, 2.0, 1); break;
    case 4: opsmith::launch("ns::scale<double, 4>", {1, 64}, x, in, to, 2.0, 1); break;
    case 5: opsmith::launch("ns::scaled<float>", {1, 64}, x, in, to); break;
    case 6: opsmith::launch("ns::scale", {1, 64}, x, in, to, 2.0, 1); break;
    case 7: opsmith::launch(scale, {1, 64}, x, in, to, 1e300, 1); break;
    case 8: opsmith::launch(scale, {1, 64}, x, in, to, Pair{1, 2}, 1); break;
    case 9: opsmith::launch("bounded", {1, 128}, x, to); break;
    case 10: opsmith::launch("reversed", {1, 32, 300000}, x, in, to, 32); break;
    case 11: opsmith::launch("bounded", {0, 32}, x, to); break;
    case 12:  // a second launch, of a kernel that may be missing
      opsmith::launch(scale, {1, 64}, x, in, to, 2.0, 1);
      opsmith::launch("reversed", {1, 64, 256}, x, in, to, 64);
      break;
    default: break;
  }
  return out;
}

// Declines after a launch or before it.
Tensor late(Tensor x, bool decline) {
  Tensor out = scaled(x, 2.0, 0);
  if (decline) opsmith::decline();
  return out;
}

std::tuple<int64_t, int64_t, int64_t> gpu(Tensor x) {
  const opsmith::GpuInfo found = opsmith::gpu_of(x);
  return {found.multiprocessors, found.shared_bytes, found.architecture};
}

bool capturing(Tensor x) { return opsmith::is_capturing(opsmith::current_stream(x)); }

}  // namespace

OPSMITH_EXPORT(scaled_forward, scaled)
OPSMITH_EXPORT(scaled_backward, scaled_backward)
OPSMITH_EXPORT(reversed, reversed)
OPSMITH_EXPORT(kinds, kinds)
OPSMITH_EXPORT(mistaken, mistaken)
OPSMITH_EXPORT(late, late)
OPSMITH_EXPORT(gpu, gpu)
OPSMITH_EXPORT(capturing, capturing)
#ifdef AS_ON_GPU
OPSMITH_TEST_INDEX
#endif
