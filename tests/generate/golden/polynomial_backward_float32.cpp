// polynomial_backward: sums along rows. From golden_ops.py:15:
//   def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct PolynomialBackward {
  static constexpr int INNER = 1, OUTER = 0, STRIDED = 3, SUMS = 4;

  const float* grad_output;
  const float* x;
  Vec<float> a;
  Vec<float> b;
  Vec<float> c;
  float* grad_x;
  float* grad_a;
  float* grad_b;
  float* grad_c;
  float* grad_d;
  const int64_t* loops;

  explicit PolynomialBackward(const int64_t* parameters) {
    grad_output = pointer<const float>(parameters[0]);
    x = pointer<const float>(parameters[1]);
    a = load_one(pointer<const float>(parameters[2]));
    b = load_one(pointer<const float>(parameters[3]));
    c = load_one(pointer<const float>(parameters[4]));
    grad_x = pointer<float>(parameters[5]);
    grad_a = pointer<float>(parameters[6]);
    grad_b = pointer<float>(parameters[7]);
    grad_c = pointer<float>(parameters[8]);
    grad_d = pointer<float>(parameters[9]);
    loops = parameters + 10;
  }

  struct Sums {
    Vec<float> grad_a;
    Vec<float> grad_b;
    Vec<float> grad_c;
    Vec<float> grad_d;
  };
  template <typename Visit>
  OPSMITH_INLINE void each_sum(Sums& sums, Visit visit) const {
    visit(0, sums.grad_a, grad_a, PerTask{});
    visit(1, sums.grad_b, grad_b, PerTask{});
    visit(2, sums.grad_c, grad_c, PerTask{});
    visit(3, sums.grad_d, grad_d, PerTask{});
  }

  template <typename Place>
  OPSMITH_INLINE void operator()(const Place& at, Sums& sums) const {
    const Vec<float> grad_output = load_contiguous(at, 0, this->grad_output);
    const Vec<float> x = load_contiguous(at, 1, this->x);
    const Vec<float> mul_1 = grad_output * c;  // golden_ops.py:16
    const Vec<float> mul_2 = grad_output * b;  // golden_ops.py:16
    const Vec<float> mul_3 = broadcast(2.0f) * x;  // golden_ops.py:16
    const Vec<float> mul_4 = mul_2 * mul_3;  // golden_ops.py:16
    const Vec<float> add_1 = mul_1 + mul_4;
    const Vec<float> mul_5 = grad_output * a;  // golden_ops.py:16
    const Vec<float> mul_6 = x * x;  // golden_ops.py:16
    const Vec<float> mul_7 = broadcast(3.0f) * mul_6;  // golden_ops.py:16
    const Vec<float> mul_8 = mul_5 * mul_7;  // golden_ops.py:16
    const Vec<float> add_2 = add_1 + mul_8;
    const Vec<float> mul_9 = mul_6 * x;  // golden_ops.py:16
    const Vec<float> mul_10 = grad_output * mul_9;  // golden_ops.py:16
    const Vec<float> mul_11 = grad_output * mul_6;  // golden_ops.py:16
    const Vec<float> mul_12 = grad_output * x;  // golden_ops.py:16
    store_contiguous(at, 2, grad_x, add_2);
    add(at, sums.grad_a, mul_10);
    add(at, sums.grad_b, mul_11);
    add(at, sums.grad_c, mul_12);
    add(at, sums.grad_d, grad_output);
  }
};

}  // namespace
}  // namespace opsmith

extern "C" __attribute__((visibility("default")))
void opsmith_polynomial_backward(int64_t begin, int64_t end, void* parameters) {
  const opsmith::PolynomialBackward kernel(static_cast<const int64_t*>(parameters));
  opsmith::segment(begin, end, kernel);
}
