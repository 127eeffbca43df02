"""Finds where a pointwise function's gradient jumps: on a grid, then by bisection."""

from __future__ import annotations

import torch

from ..accuracy.evaluate import in_pairs
from ..cases.case import Case
from ..subject import Subject

REACH, STEP = 32.0, 1 / 32
STEEP = 64.0
"""A step of the gradient this many times what steps are on the whole is a jump: a smooth one has steps of one size
from one place of the grid to the next."""
HALVINGS = 60
MOST = 16


def kinks_of(subject: Subject, row: Case, place: int, dtype: torch.dtype) -> list[float]:
    """Numbers of a dtype beside which the gradient of the row's floating tensor at `place` is not what it is at them or
    on their other side; the other tensors are as in the row."""
    argument = row.floating()[place][0].name

    def gradient(points: torch.Tensor) -> torch.Tensor | None:
        case = row
        for other, tensor in row.tensors():
            if other.name != argument:
                case = case.changed(other.name, tensor.expand(points.shape).contiguous(), "")
        leaf = points.clone().requires_grad_()
        results = subject.reference(case.changed(argument, leaf, "").values)
        targets = [in_pairs(result).sum() for result in results if result.requires_grad]
        if not targets:
            return None
        return torch.autograd.grad(targets, leaf, allow_unused=True)[0]

    # A third of a step aside, for at a kink itself the gradient may be on either side.
    grid = torch.arange(-REACH, REACH, STEP, dtype=torch.float64, device=row.every_tensor()[0].device) + STEP / 3
    slopes = gradient(grid)
    if slopes is None:
        return []
    steps = slopes.diff().abs()
    near = torch.maximum(torch.roll(steps, 1), torch.roll(steps, -1))
    jumps = (steps > STEEP * near) & (steps > 1e-9)
    low, high = grid[:-1][jumps][:MOST], grid[1:][jumps][:MOST]
    if not low.numel():
        return []
    left, right = gradient(low), gradient(high)
    assert left is not None and right is not None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope = gradient(middle)
        assert slope is not None
        to_the_left = (slope - left).abs() < (slope - right).abs()
        low, high = torch.where(to_the_left, middle, low), torch.where(to_the_left, high, middle)
    found = high.to(dtype)
    around = [found, torch.nextafter(found, found - 1), torch.nextafter(found, found + 1)]
    return [float(each) for tensor in around for each in tensor]
