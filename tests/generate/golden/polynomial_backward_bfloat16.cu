// polynomial_backward, golden_ops.py:15
//   def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
// by segment, 8 elements at a time, 32-bit indices
// grad_output linear, x linear, a scalar, b scalar, c scalar, grad_x linear, grad_a reduced:all, grad_b reduced:all, grad_c reduced:all, grad_d reduced:all
#define OPSMITH_FAST_MATH
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// What one element computes.
struct Element {
  template <int Count>
  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters) {
  }

  OPSMITH_DEVICE void operator()(
      float grad_output,
      float x,
      float a,
      float b,
      float c,
      float& grad_x,
      float& grad_a,
      float& grad_b,
      float& grad_c,
      float& grad_d
  ) const {
    const float mul_1 = grad_output * c;  // golden_ops.py:16
    const float mul_2 = grad_output * b;  // golden_ops.py:16
    const float mul_3 = 2.0f * x;  // golden_ops.py:16
    const float mul_4 = mul_2 * mul_3;  // golden_ops.py:16
    const float add_1 = mul_1 + mul_4;
    const float mul_5 = grad_output * a;  // golden_ops.py:16
    const float mul_6 = x * x;  // golden_ops.py:16
    const float mul_7 = 3.0f * mul_6;  // golden_ops.py:16
    const float mul_8 = mul_5 * mul_7;  // golden_ops.py:16
    const float add_2 = add_1 + mul_8;
    const float mul_9 = mul_6 * x;  // golden_ops.py:16
    const float mul_10 = grad_output * mul_9;  // golden_ops.py:16
    const float mul_11 = grad_output * mul_6;  // golden_ops.py:16
    const float mul_12 = grad_output * x;  // golden_ops.py:16
    grad_x = add_2;
    grad_a = mul_10;
    grad_b = mul_11;
    grad_c = mul_12;
    grad_d = grad_output;
  }
};

// Where its elements are.
struct Kernel {
  using Index = uint32_t;
  static constexpr int threads = 128;
  static constexpr int vector = 8;
  static constexpr int unroll = 1;
  static constexpr int in_flight = 2;
  static constexpr int few_blocks = 264;

  Element element;
  SegmentLoops<Index, 0, 1> loops;
  struct {
    const bfloat16* grad_output;
    const bfloat16* x;
    const bfloat16* a;  // of one element
    const bfloat16* b;  // of one element
    const bfloat16* c;  // of one element
    bfloat16* grad_x;
    PartialSums<bfloat16, float> grad_a;
    PartialSums<bfloat16, float> grad_b;
    PartialSums<bfloat16, float> grad_c;
    PartialSums<bfloat16, float> grad_d;
  } tensors;

  OPSMITH_DEVICE explicit Kernel(const Parameters<15>& parameters)
      : element(parameters),
        loops(parameters, 10),
        tensors{
            pointer<const bfloat16>(parameters, 0),
            pointer<const bfloat16>(parameters, 1),
            pointer<const bfloat16>(parameters, 2),
            pointer<const bfloat16>(parameters, 3),
            pointer<const bfloat16>(parameters, 4),
            pointer<bfloat16>(parameters, 5),
            {pointer<void>(parameters, 6), loops.chunks == 1},
            {pointer<void>(parameters, 7), loops.chunks == 1},
            {pointer<void>(parameters, 8), loops.chunks == 1},
            {pointer<void>(parameters, 9), loops.chunks == 1},
        } {}

  struct Place { Index linear_index; };

  OPSMITH_DEVICE Place start(Index kept) const {
    return {0};
  }

  OPSMITH_DEVICE Place locate(const Place& start, Index reduced) const {
    return {reduced};
  }

  struct Scalars {
    float a;
    float b;
    float c;
  };

  OPSMITH_DEVICE Scalars scalars() const {
    return {load_once(tensors.a), load_once(tensors.b), load_once(tensors.c)};
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
    float grad_a[Lanes];
    float grad_b[Lanes];
    float grad_c[Lanes];
    float grad_d[Lanes];
  };

  template <int Lanes>
  OPSMITH_DEVICE void compute(
      const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane) const {
    element(
        inputs.grad_output[lane],
        inputs.x[lane],
        scalars.a,
        scalars.b,
        scalars.c,
        outputs.grad_x[lane],
        outputs.grad_a[lane],
        outputs.grad_b[lane],
        outputs.grad_c[lane],
        outputs.grad_d[lane]
    );
  }

  template <int Lanes>
  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {
    store_pack<Lanes>(tensors.grad_x + place.linear_index, outputs.grad_x);
  }

  struct Sums {
    float grad_a;
    float grad_b;
    float grad_c;
    float grad_d;
  };

  template <int Lanes>
  OPSMITH_DEVICE void add(Sums& sums, const Outputs<Lanes>& outputs) const {
    sums.grad_a += pairwise<float>(outputs.grad_a);
    sums.grad_b += pairwise<float>(outputs.grad_b);
    sums.grad_c += pairwise<float>(outputs.grad_c);
    sums.grad_d += pairwise<float>(outputs.grad_d);
  }

  template <class Sum>
  OPSMITH_DEVICE void finish(const Sums& sums, const Sum& sum) const {
    sum.template gather<0>(sums.grad_a);
    sum.template gather<1>(sums.grad_b);
    sum.template gather<2>(sums.grad_c);
    sum.template gather<3>(sums.grad_d);
    sum.meet();
    sum.template scatter<0>(sums.grad_a, tensors.grad_a);
    sum.template scatter<1>(sums.grad_b, tensors.grad_b);
    sum.template scatter<2>(sums.grad_c, tensors.grad_c);
    sum.template scatter<3>(sums.grad_d, tensors.grad_d);
  }
};

extern "C" __global__ void __launch_bounds__(128, 8)
polynomial_backward_segment(__grid_constant__ const Parameters<15> parameters) {
  segment(Kernel(parameters));
}

}  // namespace opsmith
