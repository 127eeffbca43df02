// mish_backward: every element. From golden_ops.py:10:
//   def mish(x: Tensor) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct MishBackward {
  static constexpr int INNER = 0, OUTER = 0, STRIDED = 0, SUMS = 0;

  const float* grad_output;
  const float* x;
  float* grad_x;
  const int64_t* loops;

  explicit MishBackward(const int64_t* parameters) {
    grad_output = pointer<const float>(parameters[0]);
    x = pointer<const float>(parameters[1]);
    grad_x = pointer<float>(parameters[2]);
    loops = parameters + 3;
  }

  template <typename Place>
  OPSMITH_INLINE void operator()(const Place& at) const {
    const Vec<float> grad_output = load_linear(at, this->grad_output);
    const Vec<float> x = load_linear(at, this->x);
    const Mask greater_1 = greater(x, broadcast(20.0f));  // golden_ops.py:11
    const Vec<float> select_1 = select(greater_1, broadcast(20.0f), x);  // golden_ops.py:11
    const Vec<float> exp_1 = exp(select_1);  // golden_ops.py:11
    const Vec<float> add_1 = exp_1 + broadcast(2.0f);  // golden_ops.py:11
    const Vec<float> mul_1 = exp_1 * add_1;  // golden_ops.py:11
    const Vec<float> add_2 = mul_1 + broadcast(2.0f);  // golden_ops.py:11
    const Vec<float> div_1 = mul_1 / add_2;  // golden_ops.py:11
    const Vec<float> mul_2 = grad_output * div_1;  // golden_ops.py:11
    const Vec<float> mul_3 = grad_output * x;  // golden_ops.py:11
    const Vec<float> mul_4 = broadcast(4.0f) * exp_1;  // golden_ops.py:11
    const Vec<float> add_3 = broadcast(1.0f) + exp_1;  // golden_ops.py:11
    const Vec<float> mul_5 = mul_4 * add_3;  // golden_ops.py:11
    const Vec<float> reciprocal_1 = reciprocal(add_2);  // golden_ops.py:11
    const Vec<float> mul_6 = reciprocal_1 * reciprocal_1;  // golden_ops.py:11
    const Vec<float> mul_7 = mul_5 * mul_6;  // golden_ops.py:11
    const Vec<float> select_2 = select(greater_1, broadcast(0.0f), mul_7);  // golden_ops.py:11
    const Vec<float> mul_8 = mul_3 * select_2;  // golden_ops.py:11
    const Vec<float> add_4 = mul_2 + mul_8;
    store_linear(at, grad_x, add_4);
  }
};

}  // namespace
}  // namespace opsmith

extern "C" __attribute__((visibility("default")))
void opsmith_mish_backward(int64_t begin, int64_t end, void* parameters) {
  const opsmith::MishBackward kernel(static_cast<const int64_t*>(parameters));
  opsmith::stream(begin, end, kernel, opsmith::is_in_place(parameters, 2, 1));
}
