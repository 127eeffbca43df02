"""C++ kernels that tests and the overhead benchmark register: square, its backward, and a few that misbehave."""

from __future__ import annotations

import functools

from opsmith.kernels import NativeLibrary

SOURCE = r"""
#include <opsmith/kernel.h>

#include <stdexcept>
#include <tuple>
#include <vector>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace {

template <typename Function>
void for_float_or_double(const Tensor& x, Function&& function) {
  if (x.scalar_type() == ScalarType::Float) return function(float{});
  if (x.scalar_type() == ScalarType::Double) return function(double{});
  STD_TORCH_CHECK(false, "square takes float32 and float64");
}

Tensor square(Tensor x) {
  Tensor result = opsmith::empty_like(x);
  for_float_or_double(x, [&](auto zero) {
    using Scalar = decltype(zero);
    const Scalar* in = static_cast<const Scalar*>(x.data_ptr());
    Scalar* out = static_cast<Scalar*>(result.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * in[i];
  });
  return result;
}

std::vector<Tensor> square_backward(std::optional<Tensor> grad, Tensor x, std::vector<bool> needs) {
  Tensor result = opsmith::empty_like(x);
  for_float_or_double(x, [&](auto zero) {
    using Scalar = decltype(zero);
    const Scalar* in = static_cast<const Scalar*>(x.data_ptr());
    const Scalar* upstream = static_cast<const Scalar*>(grad->data_ptr());
    Scalar* out = static_cast<Scalar*>(result.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = 2 * in[i] * upstream[i];
  });
  return {result};
}

// x * weight summed over rows, with a scale, returned with the number of rows: several arguments, several results.
std::tuple<Tensor, Tensor> weighted_rows(Tensor x, Tensor weight, double scale) {
  Tensor sums = torch::stable::new_empty(x, {x.size(1)});
  Tensor count = torch::stable::new_empty(x, {1});
  const double* in = static_cast<const double*>(x.data_ptr());
  const double* factors = static_cast<const double*>(weight.data_ptr());
  double* out = static_cast<double*>(sums.data_ptr());
  for (int64_t column = 0; column < x.size(1); ++column) {
    double sum = 0;
    for (int64_t row = 0; row < x.size(0); ++row) sum += in[row * x.size(1) + column] * factors[row];
    out[column] = sum * scale;
  }
  static_cast<double*>(count.data_ptr())[0] = static_cast<double>(x.size(0));
  return {sums, count};
}

void square_in_place(Tensor x) {
  for_float_or_double(x, [&](auto zero) {
    using Scalar = decltype(zero);
    Scalar* values = static_cast<Scalar*>(x.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = values[i] * values[i];
  });
}

Tensor wrong_shape(Tensor x) { return torch::stable::new_empty(x, {x.numel() + 1}); }

Tensor raises(Tensor x) { STD_TORCH_CHECK(false, "the kernel's own words"); }

}  // namespace

OPSMITH_EXPORT(square_forward, square)
OPSMITH_EXPORT(square_backward_kernel, square_backward)
OPSMITH_EXPORT(weighted_rows_forward, weighted_rows)
OPSMITH_EXPORT(square_in_place_kernel, square_in_place)
OPSMITH_EXPORT(wrong_shape_kernel, wrong_shape)
OPSMITH_EXPORT(raises_kernel, raises)
"""


@functools.cache
def library() -> NativeLibrary:
    return NativeLibrary.build("opsmith_test_kernels", SOURCE)
