// mish_backward, golden_ops.py:10
//   def mish(x: Tensor) -> Tensor:
// by stream, 8 elements at a time, 32-bit indices
// grad_output linear, x linear, grad_x linear
#define OPSMITH_FAST_MATH
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// What one element computes.
struct Element {
  template <int Count>
  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters) {
  }

  OPSMITH_DEVICE void operator()(float grad_output, float x, float& grad_x) const {
    const bool greater_1 = greater(x, 20.0f);  // golden_ops.py:11
    const float select_1 = select(greater_1, 20.0f, x);  // golden_ops.py:11
    const float exp_1 = exp(select_1);  // golden_ops.py:11
    const float add_1 = exp_1 + 2.0f;  // golden_ops.py:11
    const float mul_1 = exp_1 * add_1;  // golden_ops.py:11
    const float add_2 = mul_1 + 2.0f;  // golden_ops.py:11
    const float div_1 = mul_1 / add_2;  // golden_ops.py:11
    const float mul_2 = grad_output * div_1;  // golden_ops.py:11
    const float mul_3 = grad_output * x;  // golden_ops.py:11
    const float mul_4 = 4.0f * exp_1;  // golden_ops.py:11
    const float add_3 = 1.0f + exp_1;  // golden_ops.py:11
    const float mul_5 = mul_4 * add_3;  // golden_ops.py:11
    const float reciprocal_1 = reciprocal(add_2);  // golden_ops.py:11
    const float mul_6 = reciprocal_1 * reciprocal_1;  // golden_ops.py:11
    const float mul_7 = mul_5 * mul_6;  // golden_ops.py:11
    const float select_2 = select(greater_1, 0.0f, mul_7);  // golden_ops.py:11
    const float mul_8 = mul_3 * select_2;  // golden_ops.py:11
    const float add_4 = mul_2 + mul_8;
    grad_x = add_4;
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
    const bfloat16* grad_output;
    const bfloat16* x;
    bfloat16* grad_x;
  } tensors;

  OPSMITH_DEVICE explicit Kernel(const Parameters<4>& parameters)
      : element(parameters),
        loops(parameters, 3),
        tensors{
            pointer<const bfloat16>(parameters, 0),
            pointer<const bfloat16>(parameters, 1),
            pointer<bfloat16>(parameters, 2),
        } {}

  struct Place { Index linear_index; };

  OPSMITH_DEVICE Place locate(Index index) const {
    return {index};
  }

  struct Scalars {
  };

  OPSMITH_DEVICE Scalars scalars() const {
    return {};
  }

  template <int Lanes>
  struct Inputs {
    Pack<bfloat16, Lanes> grad_output;
    Pack<bfloat16, Lanes> x;
  };

  template <int Lanes>
  OPSMITH_DEVICE Inputs<Lanes> load(const Place& place) const {
    return {
        load_pack<Lanes>(tensors.grad_output + place.linear_index),
        load_pack<Lanes>(tensors.x + place.linear_index)
    };
  }

  template <int Lanes>
  struct Outputs {
    float grad_x[Lanes];
  };

  template <int Lanes>
  OPSMITH_DEVICE void compute(
      const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane) const {
    element(inputs.grad_output[lane], inputs.x[lane], outputs.grad_x[lane]);
  }

  template <int Lanes>
  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {
    store_pack<Lanes>(tensors.grad_x + place.linear_index, outputs.grad_x);
  }
};

extern "C" __global__ void __launch_bounds__(128, 16)
mish_backward_stream(__grid_constant__ const Parameters<4> parameters) {
  stream(Kernel(parameters));
}

}  // namespace opsmith
