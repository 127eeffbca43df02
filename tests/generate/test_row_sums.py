"""Gradients of tensors that a row program broadcasts: sums over all rows, over groups of them, and over segments."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.generate import launch
from opsmith.launch.planner import Plan, Unplanned

COUNTER = itertools.count()


class Case(NamedTuple):
    """A normalisation over `dims` with a weight and a bias. `planned`: whether one launch computes its backward."""

    dims: tuple[int, ...]
    x: tuple[int, ...]
    weight: tuple[int, ...]
    bias: tuple[int, ...]
    planned: bool = True
    order: tuple[int, ...] | None = None  # of x's dimensions in memory


CASES = {
    "columns": Case((-1,), (40, 64), (64,), (1,)),
    "a weight for each head": Case((-1,), (6, 5, 4, 16), (4, 16), (4, 16)),
    "a weight for each head, odd": Case((-1,), (6, 5, 4, 9), (4, 9), (4, 9)),
    "channels of images in groups": Case((-3, -2, -1), (3, 4, 8, 4, 8), (4, 8, 1, 1), (4, 8, 1, 1)),
    "the same, odd": Case((-3, -2, -1), (3, 4, 2, 5, 7), (4, 2, 1, 1), (4, 2, 1, 1)),
    "the same, channels last": Case((-3, -2, -1), (3, 4, 8, 4, 8), (4, 8, 1, 1), (4, 8, 1, 1), order=(0, 3, 4, 1, 2)),
    "a weight for each image": Case((-3, -2, -1), (3, 4, 2, 4, 8), (3, 4, 2, 1, 1), (3, 4, 2, 1, 1)),
    "segments and columns": Case((-2, -1), (9, 4, 8, 16), (8, 1), (8, 16)),
    "groups and columns": Case((-2, -1), (9, 4, 8, 16), (4, 1, 1), (4, 8, 16)),
    "a row in the middle": Case((1,), (6, 33, 8), (33, 1), (33, 1)),
    "segments of groups, and columns of all": Case((-2, -1), (9, 4, 8, 16), (4, 8, 1), (16,), planned=False),
}


def normalised(dims: tuple[int, ...]) -> Any:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(dims, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(dims, keepdim=True) + 1e-5)
        return torch.tanh(centred * scale * weight + bias)

    return function


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls that no launch computes."""
    found: list[Any] = []

    class Noted(Plan):
        def bind(self, *arguments: Any) -> None:
            try:
                super().bind(*arguments)
            except Unplanned:
                found.append(arguments)
                raise

    monkeypatch.setattr(launch, "Plan", Noted)
    return found


@pytest.mark.parametrize("emulated", [False, True], ids=["cpu", "emulated"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_summed_in_the_backward_kernel(name: str, emulated: bool, unplanned: list[Any]) -> None:
    case = CASES[name]
    function = normalised(case.dims)
    with opsmith.runtime.forced("python"):
        op = opsmith.rowwise(f"row_sums::op{next(COUNTER)}")(function)
    for dtype, allowed in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        torch.manual_seed(0)
        tensors = [torch.randn(sizes).to(dtype) for sizes in (case.x, case.weight, case.bias)]
        if case.order is not None:
            back = [case.order.index(d) for d in range(len(case.order))]
            tensors[0] = tensors[0].permute(case.order).contiguous().permute(back)
        grad = torch.randn(case.x).to(dtype)

        def results(called: Any, cast: Any, tensors: Any = tensors, grad: Tensor = grad) -> list[Tensor]:
            leaves = [cast(tensor).detach().requires_grad_() for tensor in tensors]
            result = called(*leaves)
            return [result.detach(), *torch.autograd.grad(result, leaves, grad.to(result.dtype))]

        if emulated:
            with opsmith.emulate():
                actual = results(op, lambda tensor: tensor)
        else:
            actual = results(op, lambda tensor: tensor)
        for found, right in zip(actual, results(function, lambda tensor: tensor.double()), strict=True):
            assert found.dtype == dtype
            assert (found.double() - right).abs().max() <= allowed * right.abs().max()
    assert (not unplanned) == case.planned
