// ConvRNN on the CPU: sequences are shared out among torch's threads, the units of a step are one vectorised loop.
//
// Half types are computed in float: rows are widened as they are read, and the state is never rounded. Sums for the
// gradient of the kernel are made by groups of sequences and added in order: the same bits for any number of threads.
#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arguments.h"

namespace {

using convrnn::Activation, convrnn::activation_of, convrnn::validate;
using opsmith::Tensor;

template <typename Element>
using Value = std::conditional_t<sizeof(Element) == 2, float, Element>;

// tanh without calls or branches, for loops of it to become vectors: x + x^3 p(x^2) below 0.625, else 1 - 2 / (e^2x + 1),
// with e^r = 2^n e^s, |s| <= log(2) / 2. Within 1.5 units in the last place.
inline float tanh_of(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  const float p =
      ((((-0.00570496777f * square + 0.0206390675f) * square - 0.0537397079f) * square + 0.133314416f) * square -
       0.333332807f);
  const float middle = x + x * square * p;
  const float doubled = magnitude < 10.0f ? 2.0f * magnitude : 20.0f;  // from there on it is 1
  const float rounding = 12582912.0f;  // adding it leaves no fraction
  const float n = (doubled * 1.44269504f + rounding) - rounding;
  const float s = (doubled - n * 0.693359375f) + n * 2.12194440e-4f;
  const float q =
      (((0.00138145545f * s + 0.00836873613f) * s + 0.041668389f) * s + 0.166665211f) * s + 0.49999994f;
  const float power = __builtin_bit_cast(float, (static_cast<int32_t>(n) + 127) << 23);
  const float e = (1.0f + (s + s * s * q)) * power;
  const float outside = std::copysign(1.0f - 2.0f / (e + 1.0f), x);
  return x != x ? x : magnitude < 0.625f ? middle : outside;
}

inline double tanh_of(double x) { return std::tanh(x); }

template <typename V>
void activate(V* values, int64_t width, Activation activation) {
  if (activation == Activation::tanh) {
    for (int64_t i = 0; i < width; ++i) values[i] = tanh_of(values[i]);
  } else if (activation == Activation::relu) {
    for (int64_t i = 0; i < width; ++i) values[i] = values[i] > V(0) || values[i] != values[i] ? values[i] : V(0);
  }
}

// A row of units with zeros at both ends, for the convolution to run over.
template <typename V>
class Padded {
 public:
  Padded(int64_t width, int64_t radius) : values_(width + 2 * radius, V(0)), radius_(radius) {}

  V* begin() { return values_.data() + radius_; }

  template <typename Element>
  void read(const Element* row, int64_t width) {
    for (int64_t i = 0; i < width; ++i) begin()[i] = static_cast<V>(row[i]);
  }

 private:
  std::vector<V> values_;
  int64_t radius_;
};

// sums[i] += sum over k of taps[k] * values[i + k - radius], or with the taps from the other end.
template <typename V>
void convolve(V* sums, const V* values, int64_t width, const std::vector<V>& taps, bool mirrored) {
  const int64_t count = static_cast<int64_t>(taps.size());
  for (int64_t k = 0; k < count; ++k) {
    const V tap = taps[mirrored ? count - 1 - k : k];
    const V* shifted = values + k - count / 2;
    for (int64_t i = 0; i < width; ++i) sums[i] += tap * shifted[i];
  }
}

// The sum of a[i] * b[i]: a vector of sums, which also round less than one would.
template <typename V>
double product_sum(const V* a, const V* b, int64_t count) {
  constexpr int lanes = 16;
  V sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  for (const V part : sums) sum += part;
  return sum;
}

template <typename V, typename Element>
std::vector<V> taps_of(const Tensor& kernel) {
  const Element* taps = opsmith::data<const Element>(kernel);
  return std::vector<V>(taps, taps + kernel.numel());
}

// Sequences that are worth a thread of their own.
int64_t grain(int64_t steps, int64_t width) { return 1 + 16384 / (1 + steps * width); }

template <typename Function>
auto dispatch(const Tensor& x, Function&& function) {
  return opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", function);
}

Tensor forward(Tensor x, Tensor kernel, Tensor hidden, std::string activation_name) {
  opsmith::expect(x, "x").cpu();
  validate(x, kernel, hidden);
  const Activation activation = activation_of(activation_name);
  const int64_t batch = x.size(0), steps = x.size(1), width = x.size(2);
  Tensor output = opsmith::empty_like(x);
  dispatch(x, [&](auto zero) {
    using Element = decltype(zero);
    using V = Value<Element>;
    const auto taps = taps_of<V, Element>(kernel);
    const Element* inputs = opsmith::data<const Element>(x);
    const Element* first = opsmith::data<const Element>(hidden);
    Element* outputs = opsmith::data<Element>(output);
    opsmith::parallel_for(batch, grain(steps, width), [&](int64_t begin, int64_t end) {
      Padded<V> state(width, kernel.numel() / 2);
      std::vector<V> sums(width);
      for (int64_t sequence = begin; sequence < end; ++sequence) {
        state.read(first + sequence * width, width);
        for (int64_t row = sequence * steps; row < (sequence + 1) * steps; ++row) {
          for (int64_t i = 0; i < width; ++i) sums[i] = static_cast<V>(inputs[row * width + i]);
          convolve(sums.data(), state.begin(), width, taps, /*mirrored=*/false);
          activate(sums.data(), width, activation);
          for (int64_t i = 0; i < width; ++i) {
            state.begin()[i] = sums[i];
            outputs[row * width + i] = static_cast<Element>(sums[i]);
          }
        }
      }
    });
  });
  return output;
}

// slopes[i] = the derivative of the activation at step t: from h_t as it was stored, for tanh in a half type from x_t and
// h_{t-1}, since 1 - h^2 of a rounded h near 1 has no digit left.
template <typename Element, typename V>
void slopes_at(
    V* slopes, const Element* present, const Element* input, const V* past, int64_t width, const std::vector<V>& taps,
    Activation activation) {
  if (activation == Activation::identity) {
    for (int64_t i = 0; i < width; ++i) slopes[i] = V(1);
  } else if (activation == Activation::relu) {
    for (int64_t i = 0; i < width; ++i) slopes[i] = static_cast<V>(present[i]) <= V(0) ? V(0) : V(1);
  } else if constexpr (sizeof(Element) == 2) {
    for (int64_t i = 0; i < width; ++i) slopes[i] = static_cast<V>(input[i]);
    convolve(slopes, past, width, taps, /*mirrored=*/false);
    for (int64_t i = 0; i < width; ++i) {
      const V e = std::exp(V(-2) * std::fabs(slopes[i]));
      slopes[i] = V(4) * e / ((V(1) + e) * (V(1) + e));
    }
  } else {
    for (int64_t i = 0; i < width; ++i) slopes[i] = V(1) - present[i] * present[i];
  }
}

constexpr int64_t kMostGroups = 1024;

// The first sequence of a group; groups differ by one sequence at most.
int64_t start_of(int64_t group, int64_t groups, int64_t batch) {
  return group * (batch / groups) + std::min(group, batch % groups);
}

std::vector<Tensor> backward(
    std::optional<Tensor> grad, Tensor x, Tensor kernel, Tensor hidden, std::string activation_name, Tensor output,
    std::vector<bool> needs) {
  const Activation activation = activation_of(activation_name);
  const int64_t batch = x.size(0), steps = x.size(1), width = x.size(2), count = kernel.numel();
  const bool needs_x = needs[0], needs_kernel = needs[1], needs_hidden = needs[2];
  std::vector<Tensor> results;
  for (int argument = 0; argument < 3; ++argument) {
    if (needs[argument]) results.push_back(opsmith::empty_like(argument == 0 ? x : argument == 1 ? kernel : hidden));
  }
  dispatch(x, [&](auto zero) {
    using Element = decltype(zero);
    using V = Value<Element>;
    const auto taps = taps_of<V, Element>(kernel);
    const Element* upstream = opsmith::data<const Element>(grad);
    const Element* inputs = opsmith::data<const Element>(x);
    const Element* outputs = opsmith::data<const Element>(output);
    const Element* first = opsmith::data<const Element>(hidden);
    Element* grad_x = needs_x ? opsmith::data<Element>(results[0]) : nullptr;
    Element* grad_kernel = needs_kernel ? opsmith::data<Element>(results[needs_x]) : nullptr;
    Element* grad_hidden = needs_hidden ? opsmith::data<Element>(results.back()) : nullptr;
    // The kernel's gradient is summed by groups of sequences, which the batch alone decides: the same with any threads.
    const int64_t groups = std::min(batch, kMostGroups);
    const int64_t group_grain = std::max<int64_t>(1, grain(steps, width) * groups / std::max<int64_t>(1, batch));
    std::vector<double> totals(needs_kernel ? groups * count : 0, 0.0);
    opsmith::parallel_for(groups, group_grain, [&](int64_t first_group, int64_t end_group) {
      Padded<V> delta(width, count / 2), past(width, count / 2);
      std::vector<V> sums(width), slopes(width);
      const int64_t end = start_of(end_group, groups, batch);
      int64_t group = first_group;
      for (int64_t sequence = start_of(first_group, groups, batch); sequence < end; ++sequence) {
        group += sequence == start_of(group + 1, groups, batch);
        std::fill_n(delta.begin(), width, V(0));
        for (int64_t t = steps - 1; t >= 0; --t) {
          const int64_t row = (sequence * steps + t) * width;
          past.read(t == 0 ? first + sequence * width : outputs + row - width, width);
          slopes_at(slopes.data(), outputs + row, inputs + row, past.begin(), width, taps, activation);
          for (int64_t i = 0; i < width; ++i) sums[i] = upstream != nullptr ? static_cast<V>(upstream[row + i]) : V(0);
          convolve(sums.data(), delta.begin(), width, taps, /*mirrored=*/true);
          for (int64_t i = 0; i < width; ++i) delta.begin()[i] = sums[i] * slopes[i];
          if (needs_x) {
            for (int64_t i = 0; i < width; ++i) grad_x[row + i] = static_cast<Element>(delta.begin()[i]);
          }
          for (int64_t k = 0; needs_kernel && k < count; ++k) {
            totals[group * count + k] += product_sum(delta.begin(), past.begin() + k - count / 2, width);
          }
        }
        if (needs_hidden) {
          std::fill(sums.begin(), sums.end(), V(0));
          convolve(sums.data(), delta.begin(), width, taps, /*mirrored=*/true);
          for (int64_t i = 0; i < width; ++i) grad_hidden[sequence * width + i] = static_cast<Element>(sums[i]);
        }
      }
    });
    for (int64_t k = 0; needs_kernel && k < count; ++k) {
      double sum = 0;
      for (int64_t group = 0; group < groups; ++group) sum += totals[group * count + k];
      grad_kernel[k] = static_cast<Element>(sum);
    }
  });
  return results;
}

}  // namespace

OPSMITH_EXPORT(convrnn_forward, forward)
OPSMITH_EXPORT(convrnn_backward, backward)
