// polynomial_forward, golden_ops.py:15
//   def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
// by stream, 8 elements at a time, 32-bit indices
// x linear, a scalar, b scalar, c scalar, d scalar, output linear
#define OPSMITH_FAST_MATH
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// What one element computes.
struct Element {
  template <int Count>
  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters) {
  }

  OPSMITH_DEVICE void operator()(float x, float a, float b, float c, float d, float& output) const {
    const float mul_1 = x * x;  // golden_ops.py:16
    const float mul_2 = mul_1 * x;  // golden_ops.py:16
    const float mul_3 = a * mul_2;  // golden_ops.py:16
    const float mul_4 = b * mul_1;  // golden_ops.py:16
    const float add_1 = mul_3 + mul_4;  // golden_ops.py:16
    const float mul_5 = c * x;  // golden_ops.py:16
    const float add_2 = add_1 + mul_5;  // golden_ops.py:16
    const float add_3 = add_2 + d;  // golden_ops.py:16
    output = add_3;
  }
};

// Where its elements are.
struct Kernel {
  using Index = uint32_t;
  static constexpr int threads = 128;
  static constexpr int vector = 8;
  static constexpr int unroll = 2;

  Element element;
  StreamLoops<Index, 0> loops;
  struct {
    const bfloat16* x;
    const bfloat16* a;  // of one element
    const bfloat16* b;  // of one element
    const bfloat16* c;  // of one element
    const bfloat16* d;  // of one element
    bfloat16* output;
  } tensors;

  OPSMITH_DEVICE explicit Kernel(const Parameters<7>& parameters)
      : element(parameters),
        loops(parameters, 6),
        tensors{
            pointer<const bfloat16>(parameters, 0),
            pointer<const bfloat16>(parameters, 1),
            pointer<const bfloat16>(parameters, 2),
            pointer<const bfloat16>(parameters, 3),
            pointer<const bfloat16>(parameters, 4),
            pointer<bfloat16>(parameters, 5),
        } {}

  struct Place { Index linear_index; };

  OPSMITH_DEVICE Place locate(Index index) const {
    return {index};
  }

  struct Scalars {
    float a;
    float b;
    float c;
    float d;
  };

  OPSMITH_DEVICE Scalars scalars() const {
    return {load_once(tensors.a), load_once(tensors.b), load_once(tensors.c), load_once(tensors.d)};
  }

  template <int Lanes>
  struct Inputs {
    Pack<bfloat16, Lanes> x;
  };

  template <int Lanes>
  OPSMITH_DEVICE Inputs<Lanes> load(const Place& place) const {
    return {load_pack<Lanes>(tensors.x + place.linear_index)};
  }

  template <int Lanes>
  struct Outputs {
    float output[Lanes];
  };

  template <int Lanes>
  OPSMITH_DEVICE void compute(
      const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane) const {
    element(inputs.x[lane], scalars.a, scalars.b, scalars.c, scalars.d, outputs.output[lane]);
  }

  template <int Lanes>
  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {
    store_pack<Lanes>(tensors.output + place.linear_index, outputs.output);
  }
};

extern "C" __global__ void __launch_bounds__(128, 16)
polynomial_forward_stream(__grid_constant__ const Parameters<7> parameters) {
  stream(Kernel(parameters));
}

}  // namespace opsmith
