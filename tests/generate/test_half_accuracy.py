"""Half types take cheaper forms of functions: on every number there is, the result is within one ULP of the exact
one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import opsmith
from opsmith.checks.accuracy.budget import ulp

Fresh = Callable[[str], str]

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "silu": functional.silu,
    "mish": functional.mish,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
}
EXACT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": lambda x: x * 0.5 * torch.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
}
"""Where torch's own in float64 has no digits left, far out."""
PLACES = ["emulated", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def every_number(dtype: torch.dtype) -> torch.Tensor:
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    return numbers[numbers.isfinite()]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_is_within_one_ulp(fresh: Fresh, name: str, dtype: torch.dtype, place: str) -> None:
    function, numbers = FUNCTIONS[name], every_number(dtype)
    declared = {}
    exec(
        f"def {name}(x: torch.Tensor) -> torch.Tensor:\n    return function(x)",
        globals() | {"function": function},
        declared,
    )
    op = opsmith.pointwise(fresh(name))(declared[name])
    with opsmith.emulate() if place == "emulated" else contextlib.nullcontext():
        given = op(numbers.to("cuda" if place == "cuda" else "cpu")).cpu().double()
    exact = EXACT.get(name, function)(numbers.double())
    error, own = (_error(each, exact, dtype) for each in (given, function(numbers)))
    wrong = error > own.clamp(min=1.0)  # far down torch's own sigmoid is zero for the smallest of numbers
    assert numbers[wrong].tolist() == []


def _error(given: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In ULP; none where a number is infinite or NaN as it should be."""
    rounded = exact.to(dtype).double()
    alike = (given == rounded) | (given.isnan() & rounded.isnan())
    return torch.where(alike, 0.0, (given.double() - exact).abs().nan_to_num(nan=torch.inf) / ulp(exact, dtype))
