"""C++ kernels that tests and the overhead benchmark register: square, its backward, and a few that misbehave."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from opsmith.kernels import NativeLibrary
from opsmith.kernels.native import INCLUDE_DIRECTORY
from opsmith.toolchain import compile_with_nvcc

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


CUDA_SOURCE = r"""
#include <opsmith/kernel.h>
#include <cuda_runtime.h>

using torch::stable::Tensor;

__global__ void square_kernel(const float* x, float* out, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    out[i] = x[i] * x[i];
  }
}

Tensor square(Tensor x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float, "square takes float32");
  Tensor out = opsmith::empty_like(x);
  if (x.numel() == 0) return out;
  void* stream = nullptr;
  opsmith::check(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream), "the current stream");
  square_kernel<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), x.numel());
  const cudaError_t status = cudaGetLastError();
  STD_TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
  return out;
}

OPSMITH_EXPORT(square_forward, square)
"""


@functools.cache
def library() -> NativeLibrary:
    return NativeLibrary.build("opsmith_test_kernels", SOURCE)


@functools.cache
def cuda_library() -> NativeLibrary:
    """CUDA_SOURCE compiled by nvcc for Hopper; works without a GPU."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "square.cu"
        source.write_text(CUDA_SOURCE)
        path = compile_with_nvcc(
            "opsmith_cuda_square",
            source,
            arch="sm_90",
            output="shared",
            abi="stable",
            include_dirs=[INCLUDE_DIRECTORY],
            extra_flags=["-DUSE_CUDA"],
        )
    return NativeLibrary(path)
