"""Sums that one block makes whole: the pass writes the gradient itself, in its own dtype, and nothing is combined."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.checks import compare
from opsmith.generate.devices import Emulated

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
# Shapes of x, a and b: which of them are summed along what decides how many sums there are of each.
WHOLE = {
    "columns": [(32, 32), (32,), (32, 32)],
    "odd columns": [(5, 7), (7,), (5, 7)],
    "some rows, narrower tiles": [(300, 16), (16,), (300, 16)],
    "rows": [(6, 40), (6, 1), (6, 40)],
    "channels": [(4, 8, 2, 2), (8, 1, 1), (4, 8, 2, 2)],
    "everything": [(1000,), (1,), (1000,)],
    "columns and all": [(32, 32), (32,), (1,)],
    "one row": [(1, 6), (6,), (1, 1)],
}
SEVERAL = {
    "many rows": [(3000, 64), (64,), (3000, 64)],
    "rows and all": [(3, 40), (3, 1), (1,)],
    "many elements": [(20000,), (1,), (20000,)],
}


@opsmith.pointwise("whole_sums::affine")
def affine(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(x) * a + b


@pytest.fixture
def combined(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The dtypes of the results that were made of partial sums by a launch of their own."""
    found: list[torch.dtype] = []
    combine = Emulated.combine

    def noted(self: Emulated, dtype: torch.dtype, *rest: object) -> None:
        found.append(dtype)
        combine(self, dtype, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Emulated, "combine", noted)
    return found


def check(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
    x, a, b = (torch.randn(shape, dtype=dtype) for shape in shapes)
    with opsmith.emulate(seed=3):
        compared = compare(affine, opsmith.Sample((x, a, b)))
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    assert len(compared) == 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", WHOLE.values(), ids=WHOLE)
def test_one_sum_an_element_is_written_by_the_pass(
    shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, combined: list[torch.dtype]
) -> None:
    check(shapes, dtype)
    assert combined == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", SEVERAL.values(), ids=SEVERAL)
def test_several_are_combined(
    shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, combined: list[torch.dtype]
) -> None:
    check(shapes, dtype)
    assert set(combined) == {dtype}
