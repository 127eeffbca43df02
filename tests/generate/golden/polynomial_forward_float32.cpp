// polynomial_forward: every element. From golden_ops.py:15:
//   def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct PolynomialForward {
  static constexpr int INNER = 0, OUTER = 0, STRIDED = 0, SUMS = 0;

  const float* x;
  Vec<float> a;
  Vec<float> b;
  Vec<float> c;
  Vec<float> d;
  float* output;
  const int64_t* loops;

  explicit PolynomialForward(const int64_t* parameters) {
    x = pointer<const float>(parameters[0]);
    a = load_one(pointer<const float>(parameters[1]));
    b = load_one(pointer<const float>(parameters[2]));
    c = load_one(pointer<const float>(parameters[3]));
    d = load_one(pointer<const float>(parameters[4]));
    output = pointer<float>(parameters[5]);
    loops = parameters + 6;
  }

  template <typename Place>
  OPSMITH_INLINE void operator()(const Place& at) const {
    const Vec<float> x = load_linear(at, this->x);
    const Vec<float> mul_1 = x * x;  // golden_ops.py:16
    const Vec<float> mul_2 = mul_1 * x;  // golden_ops.py:16
    const Vec<float> mul_3 = a * mul_2;  // golden_ops.py:16
    const Vec<float> mul_4 = b * mul_1;  // golden_ops.py:16
    const Vec<float> add_1 = mul_3 + mul_4;  // golden_ops.py:16
    const Vec<float> mul_5 = c * x;  // golden_ops.py:16
    const Vec<float> add_2 = add_1 + mul_5;  // golden_ops.py:16
    const Vec<float> add_3 = add_2 + d;  // golden_ops.py:16
    store_linear(at, output, add_3);
  }
};

}  // namespace
}  // namespace opsmith

extern "C" __attribute__((visibility("default")))
void opsmith_polynomial_forward(int64_t begin, int64_t end, void* parameters) {
  const opsmith::PolynomialForward kernel(static_cast<const int64_t*>(parameters));
  opsmith::stream(begin, end, kernel, opsmith::is_in_place(parameters, 5, 1));
}
