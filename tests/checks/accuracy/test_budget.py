"""Error budgets allow rounding errors, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opsmith
from opsmith import Op, Sample
from opsmith.checks import compare_samples
from opsmith.checks.accuracy.budget import Expected, judge, ulp
from opsmith.checks.accuracy.rounding import is_elementwise, rounding_of

Fresh = Callable[[str], str]
HALF = (torch.float16, torch.bfloat16)


def declared(
    fresh: Fresh,
    function: Callable[..., Any],
    kernel: Callable[..., Any] | None,
    *args: Tensor,
    pointwise: bool = False,
) -> Op:
    op = (opsmith.pointwise if pointwise else opsmith.op)(fresh(function.__name__))(function)
    op.register_samples(lambda device, dtype: iter([Sample(tuple(arg.to(dtype) for arg in args))]))
    if kernel is not None:
        op.register_kernel("cpu", kernel)
    return op


def gelu(x: Tensor) -> Tensor:
    return functional.gelu(x)


def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def row_sums(x: Tensor) -> Tensor:
    return x.sum(-1)


def messages(op: Op, dtype: torch.dtype = torch.float32, gradients: bool = False) -> list[str]:
    return [each.message for each in compare_samples(op, dtype=dtype, gradients=gradients) if not each]


# --- What one bad element of the reference must not excuse --------------------------------------------------------


def test_an_error_everywhere_is_found_although_the_reference_has_a_large_error_somewhere(fresh: Fresh) -> None:
    x = torch.cat([torch.randn(3000), torch.linspace(-5, -4, 60)])  # there torch's own gelu is off by thousands of ULP
    assert messages(declared(fresh, gelu, gelu, x)) == []
    (message,) = messages(declared(fresh, gelu, lambda x: functional.gelu(x) * (1 + 1e-5), x))
    assert "half of the elements are off by" in message


def test_a_result_more_accurate_than_the_reference_passes(fresh: Fresh) -> None:
    x = torch.linspace(-6, 6, 1001)
    assert messages(declared(fresh, gelu, lambda x: functional.gelu(x.double()).to(x.dtype), x), gradients=True) == []


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_a_tail_that_float64_loses_may_be_right(fresh: Fresh, dtype: torch.dtype) -> None:
    def by_erfc(x: Tensor) -> Tensor:
        return (x.double() * torch.special.erfc(-x.double() / 2**0.5) / 2).to(x.dtype)

    x = torch.tensor([-10.0])  # where torch's 1 + erf is 0, the truth 1e-23
    assert messages(declared(fresh, gelu, by_erfc, x, pointwise=True), dtype) == []
    leaks = declared(fresh, gelu, lambda x: by_erfc(x) - 1e-12, x, pointwise=True)
    assert bool(messages(leaks, dtype)) == (dtype is not torch.float16)  # which rounds 1e-12 to 0


def test_a_reference_that_is_exact_by_chance_does_not_tighten_the_budget() -> None:
    """One number is summed of twelve, each the product of several 1 - tanh^2: the reference is off by 53 ULP here, a
    kernel by 107, and a little beside it is the other way round."""

    def drawn(seed: int, low: float, high: float, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=generator).float()

    x, kernel, hidden = drawn(0, -3.32, 3.3, 4, 3, 1), drawn(1, -0.104, 0.16, 1, 1, 1), drawn(2, -3.15, 3.76, 4, 1)
    with opsmith.emulate():
        opsmith.checks.assert_matches(opsmith.ops.convrnn, x, kernel, hidden, "tanh")


# --- Orders of adding up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [64, 1024, 16384])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_a_sum_passes_and_a_missing_term_does_not(fresh: Fresh, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(50, count)
    x[:, -1] = 0.5
    assert messages(declared(fresh, row_sums, lambda x: _one_after_another(x), x)) == []
    assert messages(declared(fresh, row_sums, lambda x: x.flip(-1).sum(-1), x)) == []
    assert messages(declared(fresh, row_sums, lambda x: x.double().sum(-1).to(x.dtype), x)) == []
    assert "ULP" in messages(declared(fresh, row_sums, lambda x: x[:, :-1].sum(-1), x))[0]


def _one_after_another(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[:, 0])
    for column in x.unbind(-1):
        total = total + column
    return total


# --- Half types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_kernel_that_rounds_intermediates_is_found(fresh: Fresh, dtype: torch.dtype) -> None:
    x = torch.randn(64, 64)
    assert messages(declared(fresh, swish, lambda x: swish(x.float()).to(x.dtype), x), dtype) == []
    (message,) = messages(declared(fresh, swish, swish, x), dtype)
    assert "ULP" in message


def test_a_pointwise_kernel_that_rounds_intermediates_is_found(fresh: Fresh) -> None:
    op = declared(fresh, swish, swish, torch.randn(64, 64), pointwise=True)
    assert messages(op, torch.bfloat16) and not messages(op)


def test_rounding_twice_shows_in_the_worst_tenth(fresh: Fresh) -> None:
    x = torch.randn(64, 64)

    def twice(x: Tensor) -> Tensor:
        return (x.float() * torch.sigmoid(x.float()).to(x.dtype).float()).to(x.dtype)

    (message,) = messages(declared(fresh, swish, twice, x[:9]), torch.bfloat16)
    assert "rounded more than once" in message or "ULP" in message


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_reference_itself_may_round_as_torch_does(fresh: Fresh, dtype: torch.dtype) -> None:
    """Where an op has no kernel, or its kernel does not take the arguments."""
    x = torch.randn(64, 64)
    assert messages(declared(fresh, swish, None, x), dtype, gradients=True) == []
    refuses = declared(fresh, swish, lambda x: swish(x) if x.dtype is torch.float32 else NotImplemented, x)
    assert messages(refuses, dtype, gradients=True) == []


def test_watching_a_call_shows_where_it_rounds(fresh: Fresh) -> None:
    x = torch.randn(8, 8, dtype=torch.bfloat16)
    without = rounding_of(declared(fresh, swish, None, x), (x,))
    assert without.result and without.gradient
    forward = rounding_of(declared(fresh, swish, lambda x: swish(x.float()).to(x.dtype), x), (x,))
    assert not forward.result and forward.gradient
    generated = rounding_of(declared(fresh, swish, None, x, pointwise=True), (x,))
    assert not generated.result and not generated.gradient and generated.pointwise


# --- Which functions go by elements -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "by_elements"),
    [
        (lambda x: x * 2, True),
        (lambda x: torch.where(x > 0, x, x.exp()), True),
        (lambda x: x - x.mean(), False),
        (lambda x: x / x.norm(), False),
        (lambda x: x.cumsum(-1), False),
        (lambda x: x.softmax(-1), False),
        (lambda x: x.flip(0), False),
        (lambda x: x.sum(0), False),
        (lambda x: x.t(), False),
    ],
)
def test_an_elementwise_function_is_recognised(fresh: Fresh, function: Any, by_elements: bool) -> None:
    def reference(x: Tensor) -> Tensor:
        return function(x)  # type: ignore[no-any-return]

    op = opsmith.op(fresh("reference"))(reference)
    assert is_elementwise(op, (torch.randn(5, 7),)) == by_elements
    assert is_elementwise(op, (torch.randn(1, 11),)) == by_elements


# --- inf, NaN and the ends of a range -----------------------------------------------------------------------------


def judged(given: list[float], own: list[float], exact: list[float], dtype: torch.dtype = torch.float32) -> bool:
    moved = torch.zeros(len(exact), dtype=torch.float64)
    expected = Expected(torch.tensor(own, dtype=dtype), torch.tensor(exact, dtype=torch.float64), moved)
    return judge("result", torch.tensor(given, dtype=torch.float64).to(dtype), expected).ok


INF, NAN = float("inf"), float("nan")


def test_the_result_of_the_reference_in_either_precision_passes() -> None:
    assert judged([NAN, INF], [NAN, INF], [NAN, INF])
    assert judged([INF], [NAN], [INF]) and judged([NAN], [NAN], [INF])
    assert judged([2.0], [INF], [2.0])  # the reference overflows on the way, the op does not
    assert not judged([INF], [NAN], [2.0]) and not judged([-INF], [INF], [INF])
    assert not judged([NAN], [1.0], [1.0]) and not judged([1.0], [NAN], [NAN]) and not judged([INF], [1.0], [1.0])


def test_the_end_of_a_range_may_be_rounded_either_way() -> None:
    assert judged([INF], [65504.0], [65519.0], torch.float16) and judged([65504.0], [INF], [65521.0], torch.float16)
    assert not judged([INF], [60000.0], [60000.0], torch.float16)


def test_denormals_have_ulps_too() -> None:
    smallest = 2.0**-149
    assert float(ulp(torch.tensor(0.0, dtype=torch.float64), torch.float32)) == smallest
    assert judged([3 * smallest], [4 * smallest], [4 * smallest])
    assert not judged([0.0], [64 * smallest], [64 * smallest])


# --- Kinks and steps ----------------------------------------------------------------------------------------------


def test_an_integer_close_to_a_step_may_be_on_either_side(fresh: Fresh) -> None:
    def rounded(x: Tensor) -> Tensor:
        return (x * 3.3).round().long()

    x = torch.tensor([0.5 / 3.3, 0.2, 1.5 / 3.3, 2.0])
    assert messages(declared(fresh, rounded, lambda x: (x.double() * 3.3).round().long(), x)) == []
    (message,) = messages(declared(fresh, rounded, lambda x: (x * 3.3).round().long() + (x == 2.0), x))
    assert message == "values differ: 8 where the reference gives 7; 1 of 4 elements"


def test_mixed_dtypes_are_judged_by_the_precision_of_the_reference(fresh: Fresh) -> None:
    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    x, y = torch.randn(40, dtype=torch.float64), torch.randn(40)
    op = opsmith.op(fresh("product"))(product)
    op.register_samples(lambda device, dtype: iter([Sample((x, y))]))
    assert messages(op, gradients=True) == []
    op.register_kernel("cpu", lambda x, y: (x.float() * y.float()).to(torch.promote_types(x.dtype, y.dtype)))
    assert "ULP" in messages(op)[0]
