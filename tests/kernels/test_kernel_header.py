"""opsmith/kernel.h: the errors for wrong arguments, dtypes as C++ types, loops on torch's threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from native_kernels import NativeLibrary

from opsmith import errors
from opsmith.kernels.native import INCLUDE_DIRECTORY
from opsmith.toolchain import compile_shared_library

SOURCE = r"""
#include <opsmith/kernel.h>
#include <cstdlib>
#include <set>
#include <thread>

#ifdef OPSMITH_WITH_CUDA
#error OPSMITH_WITH_CUDA is defined without CUDA
#endif

using opsmith::Tensor;

namespace {

int64_t on_cuda(Tensor x) { return opsmith::expect(x, "x").cuda(), 0; }
int64_t on_cpu(Tensor x) { return opsmith::expect(x, "x").cpu(), 0; }
int64_t dtype(Tensor x) { return opsmith::expect(x, "x").dtype<float, opsmith::half>(), 0; }
int64_t dims(Tensor x) { return opsmith::expect(x, "x").dims(2), 0; }
int64_t few_dims(Tensor x) { return opsmith::expect(x, "x").dims(1, 3), 0; }
int64_t shape(Tensor x) { return opsmith::expect(x, "x").shape({-1, 3}), 0; }
int64_t contiguous(Tensor x) { return opsmith::expect(x, "x").contiguous(), 0; }
int64_t alike(Tensor x, Tensor y) {
  return opsmith::expect(x, "x").same_device(y, "y").same_dtype(y, "y").same_shape(y, "y"), 0;
}
int64_t maybe(std::optional<Tensor> bias) {
  opsmith::expect(bias, "bias").cpu().dtype<float>().dims(1).shape({3}).contiguous();
  return opsmith::data<const float>(bias) != nullptr;
}

// The size of an element, from its C++ type.
int64_t element_size(Tensor x) {
  return opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16, int64_t, bool>(
      x, "x", [](auto zero) { return static_cast<int64_t>(sizeof zero); });
}

Tensor wide(Tensor x) {
  Tensor out = opsmith::empty<double>(x, {x.numel(), 2});
  auto* to = opsmith::data<double>(out);
  for (int64_t i = 0; i < out.numel(); ++i) to[i] = 7;
  return out;
}

Tensor misread(Tensor x) { return opsmith::data<double>(x)[0] = 0, x; }

// A one for each element that was visited, and on how many threads.
std::tuple<Tensor, int64_t> visited(Tensor x, int64_t grain) {
  Tensor out = opsmith::empty<int64_t>(x, x.sizes());
  auto* to = opsmith::data<int64_t>(out);
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 0;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  opsmith::parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++to[i];
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return {out, static_cast<int64_t>(threads.size())};
}

int64_t failing_loop(int64_t count) {
  opsmith::parallel_for(count, 1, [](int64_t begin, int64_t end) {
    if (begin < end) opsmith::fail("a piece of a loop");
  });
  return 0;
}

int64_t stream(Tensor x) { return opsmith::current_stream(x).device; }
int64_t guard(Tensor x) { return opsmith::DeviceGuard(x), 5; }
int64_t blocks(int64_t count, int64_t threads) { return opsmith::blocks_for(count, threads); }
int64_t geometry(int64_t grid, int64_t block, int64_t shared) {
  const opsmith::Geometry made{grid, {block, 2}, shared};
  return made.grid.x + made.block.x + made.block.y;
}
int64_t throws_a_number(int64_t value) { throw value; }

}  // namespace

OPSMITH_EXPORT(on_cuda_, on_cuda)
OPSMITH_EXPORT(on_cpu_, on_cpu)
OPSMITH_EXPORT(dtype_, dtype)
OPSMITH_EXPORT(dims_, dims)
OPSMITH_EXPORT(few_dims_, few_dims)
OPSMITH_EXPORT(shape_, shape)
OPSMITH_EXPORT(contiguous_, contiguous)
OPSMITH_EXPORT(alike_, alike)
OPSMITH_EXPORT(maybe_, maybe)
OPSMITH_EXPORT(element_size_, element_size)
OPSMITH_EXPORT(wide_, wide)
OPSMITH_EXPORT(misread_, misread)
OPSMITH_EXPORT(visited_, visited)
OPSMITH_EXPORT(failing_loop_, failing_loop)
OPSMITH_EXPORT(stream_, stream)
OPSMITH_EXPORT(guard_, guard)
OPSMITH_EXPORT(blocks_, blocks)
OPSMITH_EXPORT(geometry_, geometry)
OPSMITH_EXPORT(throws_, throws_a_number)
"""


@functools.cache
def library() -> NativeLibrary:
    path = compile_shared_library(
        "opsmith_header",
        text=SOURCE,
        abi="stable",
        include_dirs=[INCLUDE_DIRECTORY],
        extra_cflags=["-Wall", "-Wextra", "-Werror"],
    )
    return NativeLibrary(path)


def function(name: str, schema: str) -> Callable[..., Any]:
    """An exported function as Python calls it."""
    operator = getattr(library(), f"{name}_").as_operator(lambda base: f"{base}{schema}")
    function.kept = [*getattr(function, "kept", []), operator]  # type: ignore[attr-defined]
    return operator.call


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("dtype", torch.ones(2).double(), "dtype_: x is of float64; this kernel takes float32, float16"),
        ("dtype", torch.ones(2, dtype=torch.complex64), "x is of complex64; this kernel takes"),
        ("dims", torch.ones(2, 3, 4), r"x has 3 dimensions, \[2, 3, 4\]; this kernel takes 2"),
        ("few_dims", torch.ones(()), r"x has 0 dimensions, \[\]; this kernel takes 1 to 3"),
        ("shape", torch.ones(4, 2), r"x has shape \[4, 2\]; this kernel takes \[-1, 3\] \(-1: any size\)"),
        ("shape", torch.ones(3), r"x has shape \[3\]; this kernel takes \[-1, 3\]"),
        (
            "contiguous",
            torch.ones(3, 4).t(),
            r"x is not contiguous \(shape \[4, 3\], strides \[1, 4\]\): pass x\.contiguous\(\)",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_given_and_what_is_taken(
    name: str, given: torch.Tensor, words: str
) -> None:
    with pytest.raises(RuntimeError, match=words):
        function(name, "(Tensor x) -> int")(given)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("dtype", torch.ones(2).half()),
        ("dims", torch.ones(2, 0)),
        ("few_dims", torch.ones(2, 0, 1)),
        ("shape", torch.ones(0, 3)),
        ("contiguous", torch.ones(3, 1).t()),
    ],
)
def test_a_right_argument_is_taken(name: str, given: torch.Tensor) -> None:
    assert function(name, "(Tensor x) -> int")(given) == 0


def test_the_device_is_named() -> None:
    on_cpu, on_cuda = (function(name, "(Tensor x) -> int") for name in ("on_cpu", "on_cuda"))
    assert on_cpu(torch.ones(1)) == 0
    with pytest.raises(RuntimeError, match=r"x is on cpu; this kernel takes CUDA tensors: pass x\.cuda\(\)"):
        on_cuda(torch.ones(1))
    with pytest.raises(RuntimeError, match=r"x is on a device that is neither the CPU nor a CUDA GPU; .* CPU tensors"):
        on_cpu(torch.ones(1, device="meta"))


def test_two_arguments_are_compared() -> None:
    alike = function("alike", "(Tensor x, Tensor y) -> int")
    assert alike(torch.ones(2, 3), torch.zeros(2, 3)) == 0
    with pytest.raises(RuntimeError, match=r"x has shape \[2, 3\] and y has \[3, 2\]; this kernel takes two alike"):
        alike(torch.ones(2, 3), torch.ones(3, 2))
    with pytest.raises(RuntimeError, match=r"x is of float32 and y of bfloat16; .*: pass x\.to\(y\.dtype\)"):
        alike(torch.ones(2), torch.ones(2).bfloat16())


def test_nothing_is_expected_of_an_absent_tensor() -> None:
    maybe = function("maybe", "(Tensor? bias) -> int")
    assert maybe(None) == 0
    assert maybe(torch.ones(3)) == 1
    with pytest.raises(RuntimeError, match="bias is of float64"):
        maybe(torch.ones(3).double())


def test_a_dtype_becomes_a_type() -> None:
    size = function("element_size", "(Tensor x) -> int")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool):
        assert size(torch.zeros(1, dtype=dtype)) == dtype.itemsize
    taken = "float32, float64, float16, bfloat16, int64, bool"
    with pytest.raises(RuntimeError, match=f"element_size_: x is of int32; this kernel takes {taken}"):
        size(torch.zeros(1, dtype=torch.int32))


def test_a_fresh_tensor_has_the_sizes_and_the_type_asked_for() -> None:
    made = function("wide", "(Tensor x) -> Tensor")(torch.ones(3))
    assert made.dtype is torch.float64 and made.tolist() == [[7.0, 7.0]] * 3


def test_a_tensor_read_as_another_type_is_refused() -> None:
    with pytest.raises(RuntimeError, match="misread_: a tensor of float32 was read as float64"):
        function("misread", "(Tensor(a!) x) -> Tensor")(torch.ones(3))


@pytest.mark.parametrize("count", [0, 1, 100, 100_000])
def test_a_loop_visits_each_element_once(count: int) -> None:
    out, threads = function("visited", "(Tensor x, int grain) -> (Tensor, int)")(torch.ones(count), 1000)
    assert bool((out == 1).all())
    assert threads <= torch.get_num_threads()
    assert threads == (0 if count == 0 else 1) or count > 1000


def test_an_exception_in_a_loop_is_raised_in_the_caller_of_the_loop() -> None:
    for count in (1, 100):
        with pytest.raises(RuntimeError, match="failing_loop_: a piece of a loop"):
            function("failing_loop", "(int count) -> int")(count)


def test_what_is_thrown_need_be_no_exception_class() -> None:
    with pytest.raises(RuntimeError, match="throws_: an exception that is not a std::exception"):
        function("throws", "(int value) -> int")(3)


def test_a_cpu_tensor_has_no_stream_and_needs_no_guard() -> None:
    with pytest.raises(RuntimeError, match="of a tensor that is on no CUDA device"):
        function("stream", "(Tensor x) -> int")(torch.ones(1))
    assert function("guard", "(Tensor x) -> int")(torch.ones(1)) == 5


def test_the_geometry_of_a_launch() -> None:
    blocks = function("blocks", "(int count, int threads) -> int")
    assert [blocks(count, 256) for count in (0, 1, 256, 257, 2**40)] == [0, 1, 1, 2, 2**32]
    geometry = function("geometry", "(int grid, int block, int shared) -> int")
    assert geometry(3, 4, 0) == 9
    for grid in (0, -1):
        with pytest.raises(RuntimeError, match=f"a launch of {grid} blocks or threads; return before it"):
            geometry(grid, 4, 0)
    with pytest.raises(RuntimeError, match="a launch of 4294967296 blocks or threads; 2147483647 are the most"):
        geometry(2**32, 4, 0)
    with pytest.raises(RuntimeError, match="a launch with -1 bytes of dynamic shared memory"):
        geometry(1, 1, -1)


def test_a_function_that_is_exported_otherwise_is_no_kernel(tmp_path: Path) -> None:
    text = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'
    plain = NativeLibrary(compile_shared_library("answer", text=text, abi="stable"))
    with pytest.raises(errors.UnknownFunctionError, match="exports no function 'answer'; it exports nothing"):
        _ = plain.answer.address
