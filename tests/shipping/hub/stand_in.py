"""A small shared library on torch's stable ABI, as `opsmith build --library` makes one: schemas, kernels, fallbacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

from opsmith.toolchain import find_cxx

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using torch::stable::Tensor;

static std::set<std::string> fallbacks;
static long launched = 0;

extern "C" void opsmith_library_fallback(const char* name) { fallbacks.insert(name); }
extern "C" long launches() { return launched; }

static bool is_served(const Tensor& x) {
  return x.scalar_type() == torch::headeronly::ScalarType::Float && x.is_contiguous();
}

static void fall_back(const char* name, StableIValue* stack) {
  if (!fallbacks.count(name)) throw std::runtime_error("no kernel, and no fallback");
  const std::string other = std::string(NAMESPACE "::_") + name + "_reference";
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(other.c_str(), "", stack, TORCH_ABI_VERSION));
}

template <typename F>
static Tensor each(const Tensor& x, F function) {
  Tensor y = torch::stable::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i)
    static_cast<float*>(y.data_ptr())[i] = function(static_cast<const float*>(x.data_ptr())[i], i);
  ++launched;
  return y;
}

// scaled(Tensor x, float factor=2.0) -> Tensor
static void scaled(StableIValue* stack, uint64_t, uint64_t) {
  const Tensor x(torch::stable::detail::to<Tensor>(stack[0]));
  if (!is_served(x)) {
    stack[0] = torch::stable::detail::from(x);
    return fall_back("scaled", stack);
  }
  const double factor = torch::stable::detail::to<double>(stack[1]);
  stack[0] = torch::stable::detail::from(each(x, [=](float v, int64_t) { return v * static_cast<float>(factor); }));
}

// grown(Tensor x) -> Tensor
static void grown(StableIValue* stack, uint64_t, uint64_t) {
  const Tensor x(torch::stable::detail::to<Tensor>(stack[0]));
  if (!is_served(x)) {
    stack[0] = torch::stable::detail::from(x);
    return fall_back("grown", stack);
  }
  stack[0] = torch::stable::detail::from(each(x, [](float v, int64_t) { return std::exp(v); }));
}

// grown_backward(Tensor? grad_output, Tensor x, Tensor? output, bool[] needs) -> Tensor[]: from the output alone.
static void grown_backward(StableIValue* stack, uint64_t, uint64_t) {
  const auto grad = torch::stable::detail::to<std::optional<Tensor>>(stack[0]);
  const Tensor x(torch::stable::detail::to<Tensor>(stack[1]));
  const auto output = torch::stable::detail::to<std::optional<Tensor>>(stack[2]);
  if (!is_served(*grad)) {
    stack[0] = torch::stable::detail::from(grad);
    stack[1] = torch::stable::detail::from(x);
    stack[2] = torch::stable::detail::from(output);
    return fall_back("grown_backward", stack);
  }
  const float* y = static_cast<const float*>(output->data_ptr());
  const std::vector<Tensor> found{each(*grad, [=](float v, int64_t i) { return v * y[i]; })};
  stack[0] = torch::stable::detail::from(found);
}

// emptied_(Tensor(x!) x) -> (), for float32.
static void emptied_(StableIValue* stack, uint64_t, uint64_t) {
  const Tensor x(torch::stable::detail::to<Tensor>(stack[0]));
  std::memset(x.data_ptr(), 0, x.numel() * sizeof(float));
  ++launched;
}

STABLE_TORCH_LIBRARY(NAMESPACE_NAME, m) {
  m.def("emptied_(Tensor(x!) x) -> ()");
  m.def("scaled(Tensor x, float factor=2.0) -> Tensor");
  m.def("scaled_backward(Tensor? grad_output, Tensor x, float factor, Tensor? output, bool[] needs) -> Tensor[]");
  m.def("scaled_out(Tensor x, float factor=2.0, *, Tensor(out!) out) -> ()");
  m.def("grown(Tensor x) -> Tensor");
  m.def("grown_backward(Tensor? grad_output, Tensor x, Tensor? output, bool[] needs) -> Tensor[]");
}
STABLE_TORCH_LIBRARY_IMPL(NAMESPACE_NAME, CPU, m) {
  m.impl("scaled", &scaled);
  m.impl("emptied_", &emptied_);
  m.impl("grown", &grown);
  m.impl("grown_backward", &grown_backward);
}
"""

OPS = """
from pathlib import Path

import torch
from torch import Tensor

import opsmith


@opsmith.op("NAME::scaled")
def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    if not x.numel():
        raise ValueError("scaled: x is empty")
    return x * factor


@opsmith.op("NAME::grown")
def grown(x: Tensor) -> Tensor:
    return x.exp()


@opsmith.op("NAME::emptied_", mutates_args=("x",))
def emptied_(x: Tensor) -> None:
    x.zero_()


written = opsmith.extension("NAME_written", Path(__file__).with_name("written.cpp"), lazy=True)
grown.register_kernel("cpu", written.grown)
grown.register_backward("cpu", written.grown_backward, saves=("output",))
"""


def build(directory: Path, namespace: str) -> Path:
    """The library for the ops of OPS."""
    source, library = directory / "stand_in.cpp", directory / "stand_in.so"
    names = f'#define NAMESPACE "{namespace}"\n#define NAMESPACE_NAME {namespace}\n'
    source.write_text(names + SOURCE)
    home = Path(torch.__file__).parent
    flags = ["-shared", "-fPIC", "-std=c++20", "-O1", "-DTORCH_TARGET_VERSION=0x020b000000000000"]
    subprocess.run(
        [
            str(find_cxx().path),
            *flags,
            "-isystem",
            home / "include",
            source,
            "-o",
            library,
            f"-L{home / 'lib'}",
            "-ltorch_cpu",
        ],
        check=True,
    )
    return library
