"""C++ kernels that tests and the overhead benchmarks register: square, its backward, and a few that misbehave."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch

import opsmith
from opsmith.kernels.extension import Extension
from opsmith.kernels.native import INCLUDE_DIRECTORY, NativeFunction
from opsmith.toolchain import compile_shared_library

SOURCE = r"""
#include <opsmith/kernel.h>

#include <tuple>

using opsmith::Tensor;

namespace {

Tensor square(Tensor x) {
  Tensor result = opsmith::empty_like(x);
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    const auto* in = opsmith::data<const decltype(zero)>(x);
    auto* out = opsmith::data<decltype(zero)>(result);
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * in[i];
  });
  return result;
}

std::vector<Tensor> square_backward(std::optional<Tensor> grad, Tensor x, std::vector<bool> needs) {
  Tensor result = opsmith::empty_like(x);
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    const auto* in = opsmith::data<const decltype(zero)>(x);
    const auto* upstream = opsmith::data<const decltype(zero)>(grad);
    auto* out = opsmith::data<decltype(zero)>(result);
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = 2 * in[i] * upstream[i];
  });
  return {result};
}

// x * weight summed over rows, with a scale, returned with the number of rows: several arguments, several results.
std::tuple<Tensor, Tensor> weighted_rows(Tensor x, Tensor weight, double scale) {
  Tensor sums = opsmith::empty(x, {x.size(1)});
  Tensor count = opsmith::empty(x, {1});
  const auto* in = opsmith::data<const double>(x);
  const auto* factors = opsmith::data<const double>(weight);
  for (int64_t column = 0; column < x.size(1); ++column) {
    double sum = 0;
    for (int64_t row = 0; row < x.size(0); ++row) sum += in[row * x.size(1) + column] * factors[row];
    opsmith::data<double>(sums)[column] = sum * scale;
  }
  opsmith::data<double>(count)[0] = static_cast<double>(x.size(0));
  return {sums, count};
}

void square_in_place(Tensor x) {
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    auto* values = opsmith::data<decltype(zero)>(x);
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = values[i] * values[i];
  });
}

Tensor wrong_shape(Tensor x) { return opsmith::empty(x, {x.numel() + 1}); }

Tensor raises(Tensor x) { opsmith::fail("the kernel's own words"); }

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

using opsmith::Tensor;

__global__ void square_kernel(const float* x, float* out, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = x[i] * x[i];
}

Tensor square(Tensor x) {
  opsmith::expect(x, "x").cuda().dtype<float>().contiguous();
  Tensor out = opsmith::empty_like(x);
  if (x.numel() == 0) return out;
  opsmith::launch(square_kernel, {opsmith::blocks_for(x.numel(), 256), 256}, x, opsmith::data<const float>(x),
                  opsmith::data<float>(out), x.numel());
  return out;
}

OPSMITH_EXPORT(square_forward, square)
"""


class NativeLibrary:
    """A compiled library of kernels: `library.square_forward` is the function exported under that name."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def build(cls, name: str, text: str) -> NativeLibrary:
        return cls(compile_shared_library(name, text=text, abi="stable", include_dirs=[INCLUDE_DIRECTORY]))

    def __getattr__(self, symbol: str) -> NativeFunction:
        if symbol.startswith("__"):
            raise AttributeError(symbol)
        return NativeFunction(self.path, symbol)


@functools.cache
def library() -> NativeLibrary:
    return NativeLibrary.build("opsmith_test_kernels", SOURCE)


@functools.cache
def extension() -> Extension:
    """The same functions by opsmith.extension."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "square.cpp"
        source.write_text(SOURCE)
        return opsmith.extension("opsmith_test_extension", source)


@functools.cache
def cuda_library() -> Extension:
    """CUDA_SOURCE compiled by nvcc, for Hopper where there is no GPU."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "square.cu"
        source.write_text(CUDA_SOURCE)
        return opsmith.extension("opsmith_cuda_square", source, arch=None if torch.cuda.is_available() else "sm_90")
