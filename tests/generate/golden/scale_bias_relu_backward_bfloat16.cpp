// scale_bias_relu_backward: sums down columns. From golden_ops.py:20:
//   def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_FAST_MATH 1
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct ScaleBiasReluBackward {
  static constexpr int INNER = 1, OUTER = 0, STRIDED = 4, SUMS = 1;

  const bfloat16* grad_output;
  const bfloat16* x;
  const bfloat16* bias;
  bfloat16* grad_x;
  float* grad_bias;
  double scale;
  float cast_1;
  const int64_t* loops;

  explicit ScaleBiasReluBackward(const int64_t* parameters) {
    grad_output = pointer<const bfloat16>(parameters[0]);
    x = pointer<const bfloat16>(parameters[1]);
    bias = pointer<const bfloat16>(parameters[2]);
    grad_x = pointer<bfloat16>(parameters[3]);
    grad_bias = pointer<float>(parameters[4]);
    scale = as_double(parameters[5]);
    cast_1 = cast<float>(scale);
    loops = parameters + 6;
  }

  struct Sums {
    Vec<float> grad_bias;
  };
  template <typename Visit>
  OPSMITH_INLINE void each_sum(Sums& sums, Visit visit) const {
    visit(0, sums.grad_bias, grad_bias, PerColumn{});
  }

  template <typename Place>
  OPSMITH_INLINE void operator()(const Place& at, Sums& sums) const {
    const Vec<float> grad_output = load_contiguous(at, 0, this->grad_output);
    const Vec<float> x = load_contiguous(at, 1, this->x);
    const Vec<float> bias = load_contiguous(at, 2, this->bias);
    const Vec<float> mul_1 = x * broadcast(cast_1);  // golden_ops.py:21
    const Vec<float> add_1 = mul_1 + bias;  // golden_ops.py:21
    const Vec<float> maximum_1 = maximum(add_1, broadcast(0.0f));  // golden_ops.py:21
    const Mask less_equal_1 = less_equal(maximum_1, broadcast(0.0f));  // golden_ops.py:21
    const Vec<float> select_1 = select(less_equal_1, broadcast(0.0f), grad_output);  // golden_ops.py:21
    const Vec<float> mul_2 = select_1 * broadcast(cast_1);  // golden_ops.py:21
    store_contiguous(at, 3, grad_x, mul_2);
    add(at, sums.grad_bias, select_1);
  }
};

}  // namespace
}  // namespace opsmith

extern "C" __attribute__((visibility("default")))
void opsmith_scale_bias_relu_backward(int64_t begin, int64_t end, void* parameters) {
  const opsmith::ScaleBiasReluBackward kernel(static_cast<const int64_t*>(parameters));
  opsmith::column(begin, end, kernel);
}
