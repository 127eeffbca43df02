// scale_bias_relu_backward, golden_ops.py:20
//   def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
// by column, 8 elements at a time, 32-bit indices
// grad_output linear, x linear, bias strided1, grad_x linear, grad_bias reduced:all
#define OPSMITH_FAST_MATH
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// What one element computes.
struct Element {
  double scale;
  float cast_1;

  template <int Count>
  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters) : scale(scalar<double>(parameters, 5)) {
    cast_1 = cast<float>(scale);
  }

  OPSMITH_DEVICE void operator()(float grad_output, float x, float bias, float& grad_x, float& grad_bias) const {
    const float mul_1 = x * cast_1;  // golden_ops.py:21
    const float add_1 = mul_1 + bias;  // golden_ops.py:21
    const float maximum_1 = maximum(add_1, 0.0f);  // golden_ops.py:21
    const bool less_equal_1 = less_equal(maximum_1, 0.0f);  // golden_ops.py:21
    const float select_1 = select(less_equal_1, 0.0f, grad_output);  // golden_ops.py:21
    const float mul_2 = select_1 * cast_1;  // golden_ops.py:21
    grad_x = mul_2;
    grad_bias = select_1;
  }
};

// Where its elements are.
struct Kernel {
  using Index = uint32_t;
  static constexpr int threads = 256;
  static constexpr int vector = 8;
  static constexpr int unroll = 1;
  static constexpr int in_flight = 2;
  static constexpr int few_blocks = 264;

  Element element;
  ColumnLoops<Index, 0, 1> loops;
  struct {
    const bfloat16* grad_output;
    const bfloat16* x;
    ColumnStrided<const bfloat16, Index, 0, 1> bias;
    bfloat16* grad_x;
    PartialSums<bfloat16, float> grad_bias;
  } tensors;

  OPSMITH_DEVICE explicit Kernel(const Parameters<14>& parameters)
      : element(parameters),
        loops(parameters, 6),
        tensors{
            pointer<const bfloat16>(parameters, 0),
            pointer<const bfloat16>(parameters, 1),
            {parameters, 2, 12},
            pointer<bfloat16>(parameters, 3),
            {pointer<void>(parameters, 4), loops.block.one_chunk},
        } {}

  struct Place { Index linear_index; Index bias; };

  OPSMITH_DEVICE Place start(Index kept, Index column_index) const {
    const Position<0, Index> position(kept, loops.kept_sizes);
    return {column_index, position.along(tensors.bias.kept) + column_index};
  }

  OPSMITH_DEVICE Place locate(const Place& start, Index reduced) const {
    const Position<1, Index> position(reduced, loops.reduced_sizes);
    return {start.linear_index + reduced * loops.columns, start.bias + position.along(tensors.bias.inner)};
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
    Pack<bfloat16, Lanes> bias;
  };

  template <int Lanes>
  OPSMITH_DEVICE Inputs<Lanes> load(const Place& place) const {
    return {
        load_pack<Lanes>(tensors.grad_output + place.linear_index),
        load_pack<Lanes>(tensors.x + place.linear_index),
        load_pack<Lanes>(tensors.bias.data + place.bias)
    };
  }

  template <int Lanes>
  struct Outputs {
    float grad_x[Lanes];
    float grad_bias[Lanes];
  };

  template <int Lanes>
  OPSMITH_DEVICE void compute(
      const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane) const {
    element(inputs.grad_output[lane], inputs.x[lane], inputs.bias[lane], outputs.grad_x[lane], outputs.grad_bias[lane]);
  }

  template <int Lanes>
  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {
    store_pack<Lanes>(tensors.grad_x + place.linear_index, outputs.grad_x);
  }

  template <int Lanes>
  struct Sums {
    float grad_bias[Lanes];
  };

  template <int Lanes>
  OPSMITH_DEVICE void add(Sums<Lanes>& sums, const Outputs<Lanes>& outputs) const {
    add_columns(sums.grad_bias, outputs.grad_bias);
  }

  template <int Lanes, class Sum>
  OPSMITH_DEVICE void finish(const Sums<Lanes>& sums, const Sum& sum) const {
    sum.template gather<0>(sums.grad_bias);
    sum.meet();
    sum.template scatter<0>(sums.grad_bias, tensors.grad_bias);
  }
};

extern "C" __global__ void __launch_bounds__(256, 4)
scale_bias_relu_backward_column(__grid_constant__ const Parameters<14> parameters) {
  column(Kernel(parameters));
}

}  // namespace opsmith
