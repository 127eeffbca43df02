// scale_bias_relu_forward, golden_ops.py:20
//   def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
// by stream, 8 elements at a time, 32-bit indices
// x linear, bias strided1, output linear
#define OPSMITH_FAST_MATH
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// What one element computes.
struct Element {
  double scale;
  float cast_1;

  template <int Count>
  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters) : scale(scalar<double>(parameters, 3)) {
    cast_1 = cast<float>(scale);
  }

  OPSMITH_DEVICE void operator()(float x, float bias, float& output) const {
    const float mul_1 = x * cast_1;  // golden_ops.py:21
    const float add_1 = mul_1 + bias;  // golden_ops.py:21
    const float maximum_1 = maximum(add_1, 0.0f);  // golden_ops.py:21
    output = maximum_1;
  }
};

// Where its elements are.
struct Kernel {
  using Index = uint32_t;
  static constexpr int threads = 128;
  static constexpr int vector = 8;
  static constexpr int unroll = 2;

  Element element;
  StreamLoops<Index, 2> loops;
  struct {
    const bfloat16* x;
    Strided<const bfloat16, Index, 0, 2> bias;
    bfloat16* output;
  } tensors;

  OPSMITH_DEVICE explicit Kernel(const Parameters<9>& parameters)
      : element(parameters),
        loops(parameters, 4),
        tensors{
            pointer<const bfloat16>(parameters, 0),
            {parameters, 1, 7},
            pointer<bfloat16>(parameters, 2),
        } {}

  struct Place { Index linear_index; Index bias; };

  OPSMITH_DEVICE Place locate(Index index) const {
    const Position<2, Index> position(index, loops.sizes);
    return {index, position.along<1>(tensors.bias.inner)};
  }

  struct Scalars {
  };

  OPSMITH_DEVICE Scalars scalars() const {
    return {};
  }

  template <int Lanes>
  struct Inputs {
    Pack<bfloat16, Lanes> x;
    Pack<bfloat16, Lanes> bias;
  };

  template <int Lanes>
  OPSMITH_DEVICE Inputs<Lanes> load(const Place& place) const {
    return {load_pack<Lanes>(tensors.x + place.linear_index), load_pack<Lanes>(tensors.bias.data + place.bias)};
  }

  template <int Lanes>
  struct Outputs {
    float output[Lanes];
  };

  template <int Lanes>
  OPSMITH_DEVICE void compute(
      const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane) const {
    element(inputs.x[lane], inputs.bias[lane], outputs.output[lane]);
  }

  template <int Lanes>
  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {
    store_pack<Lanes>(tensors.output + place.linear_index, outputs.output);
  }
};

extern "C" __global__ void __launch_bounds__(128, 16)
scale_bias_relu_forward_stream(__grid_constant__ const Parameters<9> parameters) {
  stream(Kernel(parameters));
}

}  // namespace opsmith
