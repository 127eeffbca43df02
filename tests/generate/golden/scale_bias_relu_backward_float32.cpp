// scale_bias_relu_backward: sums down columns. From golden_ops.py:20:
//   def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct ScaleBiasReluBackward {
  static constexpr int INNER = 1, OUTER = 0, STRIDED = 3, SUMS = 1;

  const float* grad_output;
  const float* output;
  float* grad_x;
  float* grad_bias;
  double scale;
  float cast_1;
  const int64_t* loops;

  explicit ScaleBiasReluBackward(const int64_t* parameters) {
    grad_output = pointer<const float>(parameters[0]);
    output = pointer<const float>(parameters[1]);
    grad_x = pointer<float>(parameters[2]);
    grad_bias = pointer<float>(parameters[3]);
    scale = as_double(parameters[4]);
    cast_1 = cast<float>(scale);
    loops = parameters + 5;
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
    const Vec<float> output = load_contiguous(at, 1, this->output);
    const Mask less_equal_1 = less_equal(output, broadcast(0.0f));  // golden_ops.py:21
    const Vec<float> select_1 = select(less_equal_1, broadcast(0.0f), grad_output);  // golden_ops.py:21
    const Vec<float> mul_1 = select_1 * broadcast(cast_1);  // golden_ops.py:21
    store_contiguous(at, 2, grad_x, mul_1);
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
