"""Row kernels on a GPU: the passes of well-known gradients, and the arithmetic of the headers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.generate.source import texts

from . import host_cuda
from .test_cuda_functions import close, points


def kernel(op: opsmith.Op, *args: Any, backward: bool = True) -> str:
    """The source of the kernel that a call, or its backward, launches."""
    args = tuple(op.signature.bind_call(args, {}))
    (found,) = texts(op._families.generation.compiler, "cuda", args, backward).values()  # type: ignore[union-attr]
    return found


def passes(text: str) -> int:
    return len(re.findall(r"// pass \d+$", text, re.MULTILINE))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_factor_that_a_row_has_in_common_does_not_delay_a_sum(dtype: torch.dtype) -> None:
    x, row = torch.empty(64, 512, dtype=dtype), torch.empty(512, dtype=dtype)
    assert passes(kernel(opsmith.ops.layer_norm, x, row, row)) == 3, "two sums; two that need the mean; results"
    assert passes(kernel(opsmith.ops.rms_norm, x, row)) == 2


def test_a_sum_is_not_infinite_for_the_lack_of_a_division() -> None:
    """The gradient of softmax sums grad * e / s; the sum of grad * e alone would be infinite."""
    x = torch.zeros(2, 4, dtype=torch.bfloat16, requires_grad=True)
    grad = torch.full((2, 4), 2e38, dtype=torch.bfloat16)
    for place in (opsmith.emulate(), contextlib.nullcontext()):
        with place:
            (found,) = torch.autograd.grad(opsmith.ops.softmax(x), x, grad)
        assert torch.equal(found, torch.zeros_like(found))


def test_what_is_rounded_to_a_half_type_is_summed_as_it_is(fresh: Callable[[str], str]) -> None:
    def rounded(x: Tensor) -> Tensor:
        part = (x.exp() / x.exp().sum(-1, keepdim=True)).to(torch.bfloat16)
        return x * part.float().sum(-1, keepdim=True)

    op = opsmith.rowwise(fresh("rounded"))(rounded)
    x = torch.randn(4, 64)
    assert passes(kernel(op, x, backward=False)) == 3
    with opsmith.emulate():
        torch.testing.assert_close(op(x), rounded(x))


def test_an_expensive_element_is_computed_once() -> None:
    """In later passes it is read from registers."""
    for dtype in (torch.float32, torch.bfloat16):
        text = kernel(opsmith.ops.softmax, torch.empty(64, 512, dtype=dtype), backward=False)
        assert len(re.findall(r"\bexp\w*\(", text)) == 1 and "carried_1[slot]" in text


def test_what_a_choice_by_an_argument_discards_is_not_computed() -> None:
    logits, target = torch.randn(6, 64), torch.arange(6)
    text = kernel(opsmith.ops.cross_entropy, logits, target, backward=False)
    with_smoothing, without = re.findall(r"elements.template each.*?\n        \}\);", text, re.DOTALL)[:2]
    assert re.search(r"if \(greater_\d\) \{\n *elements.template each", text)
    assert "row_sum_1 =" in with_smoothing and "row_sum_1 =" not in without
    for smoothing in (0.0, 0.1):
        logits[0, 5] = -torch.inf if smoothing == 0 else 0.0  # the mean is infinite, and not used
        with opsmith.emulate():
            found = opsmith.ops.cross_entropy(logits, target, smoothing)
        expected = torch.nn.functional.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_extremes_of_half_types_are_found_two_at_a_time(dtype: torch.dtype, fresh: Callable[[str], str]) -> None:
    def extremes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.amax(-1), x.amin(-1), x.abs().amax(-1, keepdim=True).float() + x.float().sum(-1, keepdim=True) * 0

    op = opsmith.rowwise(fresh("extremes"))(extremes)
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 0.0, torch.finfo(dtype).tiny / 4])
    x = torch.randn(60, 64, generator=torch.Generator().manual_seed(2))
    for row in range(30):
        x[row, row : row + 2] = special[torch.tensor([row % 6, row // 6])]
    x = x.to(dtype)
    x[40:] = -x[40:].abs()
    assert kernel(op, x, backward=False).count("Pairs<") == 3
    with opsmith.emulate():
        for actual, expected in zip(op(x), extremes(x), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@functools.cache
def _loop(fast: bool) -> Any:
    define = "#define OPSMITH_FAST_MATH" if fast else ""
    return host_cuda.library(
        f"""#include <cuda_on_host.h>
{define}
#include <opsmith/pointwise/cuda.h>
#include <opsmith/rows/cuda_division.h>
namespace opsmith {{
extern "C" __attribute__((visibility("default")))
void divide(const float* x, float number, float* output, long count) {{
  const Divisor divisor(number);
  for (long i = 0; i < count; ++i) output[i] = divisor.divide(x[i]);
}}
extern "C" __attribute__((visibility("default")))
void exponentials(const float* x, float*, float* output, long count) {{
  for (long i = 0; i < count; ++i) output[i] = fast::exp_of_negative(x[i]);
}}
}}
""",
        "row_arithmetic",
    )


def divided(x: Tensor, number: float, fast: bool) -> Tensor:
    output = torch.empty_like(x)
    own, written = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(output.data_ptr())
    _loop(fast).divide(own, ctypes.c_float(number), written, ctypes.c_long(x.numel()))
    return output


def test_division_by_one_number_rounds_as_division_does() -> None:
    generator = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**31), 2**31, (4000,), generator=generator).to(torch.int32)
    x = torch.cat([points(torch.float32), bits.view(torch.float32)])
    largest_significand = torch.tensor([0x3FFFFFFF, 0x7F7FFFFF, 0x00FFFFFF], dtype=torch.int32).view(torch.float32)
    for number in [*points(torch.float32)[:60].tolist(), *bits[:60].view(torch.float32).tolist(),
                   *largest_significand.tolist()]:  # fmt: skip
        right, found = x / number, divided(x, number, fast=False)
        exact = (x.abs() > 2.0**-100) & (right.abs() > 2.0**-100)
        assert torch.equal(found[exact], right[exact]), number
        close(found, x.double() / torch.tensor(number).double(), 2)
        assert torch.equal(found.signbit()[~right.isnan()], right.signbit()[~right.isnan()]), number


def test_fast_division_is_within_two_units() -> None:
    x = points(torch.float32)
    x = x[(x == 0) | (x.abs() > 2.0**-100)]
    for number in (3.0, -1e-30, 7e37, 2.0**-126, 2.0**127):
        close(divided(x, number, fast=True), x.double() / torch.tensor(number).double(), 2)


def test_exponentials_of_negative_numbers_keep_small_results() -> None:
    x = -torch.rand(5000, generator=torch.Generator().manual_seed(1)) * 103
    x = torch.cat([x, torch.tensor([0.0, -87.3, -88.0, -92.0, -100.0, -float("inf"), float("nan")])])
    output = torch.empty_like(x)
    own, written = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(output.data_ptr())
    _loop(True).exponentials(own, None, written, ctypes.c_long(x.numel()))
    exact = x.double().exp()
    allowed = exact * 2.0**-17 + 2.0**-149
    assert torch.equal(output.isnan(), exact.isnan())
    assert ((output.double() - exact).abs() <= allowed)[~exact.isnan()].all()
