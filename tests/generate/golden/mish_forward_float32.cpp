// mish_forward: every element. From golden_ops.py:10:
//   def mish(x: Tensor) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct MishForward {
  static constexpr int INNER = 0, OUTER = 0, STRIDED = 0, SUMS = 0;

  const float* x;
  float* output;
  const int64_t* loops;

  explicit MishForward(const int64_t* parameters) {
    x = pointer<const float>(parameters[0]);
    output = pointer<float>(parameters[1]);
    loops = parameters + 2;
  }

  template <typename Place>
  OPSMITH_INLINE void operator()(const Place& at) const {
    const Vec<float> x = load_linear(at, this->x);
    const Mask greater_1 = greater(x, broadcast(20.0f));  // golden_ops.py:11
    const Vec<float> select_1 = select(greater_1, broadcast(20.0f), x);  // golden_ops.py:11
    const Vec<float> exp_1 = exp(select_1);  // golden_ops.py:11
    const Vec<float> add_1 = exp_1 + broadcast(2.0f);  // golden_ops.py:11
    const Vec<float> mul_1 = exp_1 * add_1;  // golden_ops.py:11
    const Vec<float> add_2 = mul_1 + broadcast(2.0f);  // golden_ops.py:11
    const Vec<float> div_1 = mul_1 / add_2;  // golden_ops.py:11
    const Vec<float> mul_2 = x * div_1;  // golden_ops.py:11
    store_linear(at, output, mul_2);
  }
};

}  // namespace
}  // namespace opsmith

extern "C" __attribute__((visibility("default")))
void opsmith_mish_forward(int64_t begin, int64_t end, void* parameters) {
  const opsmith::MishForward kernel(static_cast<const int64_t*>(parameters));
  opsmith::stream(begin, end, kernel, opsmith::is_in_place(parameters, 1, 1));
}
