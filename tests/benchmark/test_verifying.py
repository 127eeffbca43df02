"""What computes something else is not timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import opsmith
from opsmith import errors
from opsmith.benchmark.contenders import contender
from opsmith.benchmark.verifying import VERIFIED_WHOLE, Verifier
from opsmith.benchmark.workload import Workload

from .ops_to_time import Fresh, cubed, scale_add

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZES = [1000, VERIFIED_WHOLE + 1]


def verify(workload: Workload, name: str, function: Any, direction: str) -> None:
    Verifier(workload, direction).verify(name, function)


def of(op: opsmith.Op, *tensors: torch.Tensor) -> Workload:
    return Workload(op, op.signature.bind(tensors, {}), "made")


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_the_op_and_a_right_kernel_pass(fresh: Fresh, size: int, dtype: torch.dtype, direction: str) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu", name="in_float32")(
        lambda x: (x.float() if x.dtype.itemsize == 2 else x).pow(3).to(x.dtype)
    )
    made = of(op, torch.randn(size).to(dtype))
    for name in ("opsmith", "eager", "in_float32"):
        verify(made, name, contender(op, name, "cpu"), direction)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_wrong_kernel_is_refused_in_every_dtype(fresh: Fresh, size: int, dtype: torch.dtype) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu", name="right")(lambda x: x * x * x)
    op.register_kernel("cpu", name="wrong")(lambda x: x * x * 1.1 * x)
    made = of(op, torch.randn(size).to(dtype))
    with pytest.raises(
        errors.WrongResultError, match=f"{op.name}, made: wrong is not timed, because its results differ"
    ):
        verify(made, "wrong", contender(op, "wrong", "cpu"), "forward")


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("size", SIZES)
def test_one_wrong_element_is_enough(fresh: Fresh, size: int, place: int) -> None:
    op = cubed(fresh)

    def off(values: Sequence[Any]) -> torch.Tensor:
        result = op.reference(values[0]).clone()
        result[place] += 1
        return result

    for name in ("opsmith", "compile"):
        with pytest.raises(errors.WrongResultError):
            verify(of(op, torch.randn(size)), name, off, "forward")


def test_a_kernel_is_held_to_rounding_and_a_baseline_to_being_the_same_function(fresh: Fresh) -> None:
    op = scale_add(fresh)
    made = of(op, torch.tensor([1e4, 1e-4]), torch.zeros(2))

    def off_where_it_is_small(values: Sequence[Any]) -> torch.Tensor:
        return op.reference(*values) + 1e-6

    verify(made, "compile", off_where_it_is_small, "forward")
    with pytest.raises(errors.WrongResultError):
        verify(made, "a_kernel", off_where_it_is_small, "forward")


def test_a_wrong_gradient_is_found_where_it_is_timed(fresh: Fresh) -> None:
    op = cubed(fresh)

    def doubled(values: Sequence[Any]) -> torch.Tensor:
        (x,) = values
        return (x**3).detach() + 2 * (x**3 - (x**3).detach())  # the value of x**3, twice its gradient

    made = of(op, torch.randn(100))
    verify(made, "compile", doubled, "forward")
    with pytest.raises(errors.WrongResultError, match="gradient of x"):
        verify(made, "compile", doubled, "backward")


def test_a_gradient_that_is_missing_is_wrong(fresh: Fresh) -> None:
    op = scale_add(fresh)

    def forgets_the_bias(values: Sequence[Any]) -> torch.Tensor:
        x, bias, scale = values
        return x * scale + bias.detach()

    with pytest.raises(errors.WrongResultError, match="gradient of bias is None for either"):
        verify(of(op, torch.randn(4, 3), torch.randn(3)), "compile", forgets_the_bias, "backward")


def test_another_shape_is_wrong(fresh: Fresh) -> None:
    with pytest.raises(errors.WrongResultError, match=r"result has shape \(2, 2\), not \(4,\)"):
        verify(of(cubed(fresh), torch.randn(4)), "compile", lambda values: (values[0] ** 3).reshape(2, 2), "forward")


@pytest.mark.parametrize(("size", "name"), [(3, "compile"), (VERIFIED_WHOLE + 1, "opsmith")])
def test_what_is_infinite_or_not_a_number_must_be_so(fresh: Fresh, size: int, name: str) -> None:
    op = cubed(fresh)
    x = torch.ones(size)
    x[:3] = torch.tensor([float("inf"), float("nan"), -float("inf")])
    verify(of(op, x), name, lambda values: values[0] ** 3, "forward")
    for wrong in (lambda v: (v[0] ** 3).nan_to_num(), lambda v: (v[0] ** 3).abs(), lambda v: v[0] ** 3 + v[0].max()):
        with pytest.raises(errors.WrongResultError):
            verify(of(op, x), name, wrong, "forward")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("size", "name"), [(3, "compile"), (VERIFIED_WHOLE + 1, "opsmith")])
def test_a_number_must_be_one(fresh: Fresh, size: int, name: str, dtype: torch.dtype) -> None:
    made = of(cubed(fresh), torch.ones(size, dtype=dtype))
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(errors.WrongResultError, match="off by"):
            verify(
                made,
                name,
                lambda values, wrong=wrong: torch.where(values[0].cumsum(0) == 2, wrong, values[0]),
                "forward",
            )


def test_a_jump_has_two_sides(fresh: Fresh) -> None:
    """x * 3 - 0.3 is rounded to zero at a tenth, and is above it in truth."""

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x * 3 - 0.3 > 0, 1.0, x)

    op = opsmith.op(fresh("step"))(step)
    x = torch.full((1000,), 0.1)
    above, wrong = (lambda values: torch.ones_like(values[0])), (lambda values: 2 * torch.ones_like(values[0]))
    in_float, in_double = step(x), step(x.double())
    assert in_float[0] == x[0] and in_double[0] == 1
    for right in (lambda values: step(values[0]), above):
        verify(of(op, x), "compile", right, "forward")
    with pytest.raises(errors.WrongResultError, match="off by"):
        verify(of(op, x), "compile", wrong, "forward")


@pytest.mark.parametrize("size", SIZES)
def test_whole_numbers_are_compared(fresh: Fresh, size: int) -> None:
    def is_positive(x: torch.Tensor) -> torch.Tensor:
        return x > 0

    op = opsmith.op(fresh("is_positive"))(is_positive)
    made = of(op, torch.linspace(-1, 1, size))
    verify(made, "compile", lambda values: values[0] > 0, "forward")
    with pytest.raises(errors.WrongResultError, match="result differs"):
        verify(made, "compile", lambda values: values[0] > 0.5, "forward")


def test_sums_may_be_taken_in_another_order(fresh: Fresh) -> None:
    def total(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    op = opsmith.op(fresh("total"))(total)
    made = of(op, torch.rand(VERIFIED_WHOLE + 1))
    verify(made, "opsmith", lambda values: values[0].flip(0).reshape(-1, 1).sum(0)[0], "forward")
    with pytest.raises(errors.WrongResultError, match="would be rounding"):
        verify(made, "opsmith", lambda values: values[0].sum() * 1.01, "forward")


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_small_numbers_are_held_to_their_own_rounding(
    fresh: Fresh, size: int, dtype: torch.dtype, direction: str
) -> None:
    """A kernel that flushes what is small is within any rounding of the largest number."""

    def growth(x: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        return torch.exp(x * rate)

    op = opsmith.pointwise(fresh("growth"))(growth)
    made = of(op, torch.linspace(-4, 8, size).view(-1, 1).to(dtype), torch.ones(1).to(dtype))
    verify(made, "opsmith", contender(op, "opsmith", "cpu"), direction)

    def flushed(values: Sequence[Any]) -> torch.Tensor:
        right = op.reference(*values)
        return right.where(right.detach() > 1e-1, right * 1.25)

    with pytest.raises(errors.WrongResultError, match=r"result|gradient"):
        verify(made, "flushed", flushed, direction)
