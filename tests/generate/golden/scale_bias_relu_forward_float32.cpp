// scale_bias_relu_forward: every element. From golden_ops.py:20:
//   def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
#define OPSMITH_LANES 8
#define OPSMITH_SLEEF 1
#include <opsmith/pointwise/cpu.h>

namespace opsmith {
namespace {

struct ScaleBiasReluForward {
  static constexpr int INNER = 2, OUTER = 0, STRIDED = 1, SUMS = 0;

  const float* x;
  const float* bias;
  float* output;
  double scale;
  float cast_1;
  const int64_t* loops;

  explicit ScaleBiasReluForward(const int64_t* parameters) {
    x = pointer<const float>(parameters[0]);
    bias = pointer<const float>(parameters[1]);
    output = pointer<float>(parameters[2]);
    scale = as_double(parameters[3]);
    cast_1 = cast<float>(scale);
    loops = parameters + 4;
  }

  template <typename Place>
  OPSMITH_INLINE void operator()(const Place& at) const {
    const Vec<float> x = load_linear(at, this->x);
    const Vec<float> bias = load_contiguous(at, 0, this->bias);
    const Vec<float> mul_1 = x * broadcast(cast_1);  // golden_ops.py:21
    const Vec<float> add_1 = mul_1 + bias;  // golden_ops.py:21
    const Vec<float> maximum_1 = maximum(add_1, broadcast(0.0f));  // golden_ops.py:21
    store_linear(at, output, maximum_1);
  }
};

}  // namespace
}  // namespace opsmith

extern "C" __attribute__((visibility("default")))
void opsmith_scale_bias_relu_forward(int64_t begin, int64_t end, void* parameters) {
  const opsmith::ScaleBiasReluForward kernel(static_cast<const int64_t*>(parameters));
  opsmith::stream(begin, end, kernel, opsmith::is_in_place(parameters, 2, 1));
}
