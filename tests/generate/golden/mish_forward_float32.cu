// mish_forward, golden_ops.py:10
//   def mish(x: Tensor) -> Tensor:
// by stream, 4 elements at a time, 32-bit indices
// x linear, output linear
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// What one element computes.
struct Element {
  template <int Count>
  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters) {
  }

  OPSMITH_DEVICE void operator()(float x, float& output) const {
    const bool greater_1 = greater(x, 20.0f);  // golden_ops.py:11
    const float select_1 = select(greater_1, 20.0f, x);  // golden_ops.py:11
    const float exp_1 = exp(select_1);  // golden_ops.py:11
    const float add_1 = exp_1 + 2.0f;  // golden_ops.py:11
    const float mul_1 = exp_1 * add_1;  // golden_ops.py:11
    const float add_2 = mul_1 + 2.0f;  // golden_ops.py:11
    const float div_1 = mul_1 / add_2;  // golden_ops.py:11
    const float mul_2 = x * div_1;  // golden_ops.py:11
    output = mul_2;
  }
};

// Where its elements are.
struct Kernel {
  using Index = uint32_t;
  static constexpr int threads = 128;
  static constexpr int vector = 4;
  static constexpr int unroll = 1;

  Element element;
  StreamLoops<Index, 0> loops;
  struct {
    const float* x;
    float* output;
  } tensors;

  OPSMITH_DEVICE explicit Kernel(const Parameters<3>& parameters)
      : element(parameters),
        loops(parameters, 2),
        tensors{
            pointer<const float>(parameters, 0),
            pointer<float>(parameters, 1),
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
    Pack<float, Lanes> x;
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
    element(inputs.x[lane], outputs.output[lane]);
  }

  template <int Lanes>
  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {
    store_pack<Lanes>(tensors.output + place.linear_index, outputs.output);
  }
};

extern "C" __global__ void __launch_bounds__(128, 8)
mish_forward_stream(__grid_constant__ const Parameters<3> parameters) {
  stream(Kernel(parameters));
}

}  // namespace opsmith
