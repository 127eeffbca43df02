"""Where an op rounds: in its kernels, or wherever torch does if the reference runs.

A kernel computes half types in float32 and rounds once. An op without one for these arguments runs its reference in the
half type itself, and rounds each intermediate: it is as good as torch, and nobody has to be better.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from ...reference.signature import flatten, unflatten
from .budget import HALF_TYPES
from .evaluate import evaluate, floating_dtypes
from .truth import Rounding


def rounding_of(op: Op | Adopted, values: Sequence[Any], gradients: bool = True) -> Rounding:
    """Found by watching a call: does it run the reference on its way forward, and on its way back?"""
    pointwise = is_elementwise(op, values)
    if not isinstance(op, Op):
        return Rounding(pointwise=pointwise)
    if not any(dtype in HALF_TYPES for dtype in floating_dtypes(values)):
        return Rounding(pointwise=pointwise)
    variant = op._families.in_use()
    written = variant.differentiable.written_gradient is not None  # in torch's operators
    counts: list[int] = []

    def called(args: Sequence[Any]) -> Any:
        before = len(runs)
        positional, keyword = variant.forward.signature.arranged(args)
        returned = op(*positional, **keyword)
        counts.append(len(runs) - before)
        return returned

    with _watched(op) as runs:
        for _ in range(2):  # a kernel's first results are verified with the reference, which does not count
            runs.clear()
            evaluate(op.signature.arguments, called, values, gradients=gradients)
    backward = len(runs) - counts[-1]
    forward = counts[-1] > 0
    return Rounding(forward, written or backward > 0 or not gradients, pointwise, runs_reference=forward)


def reference_runs(op: Op | Adopted, values: Sequence[Any]) -> bool:
    """Whether a call runs the reference on its way forward."""
    if not isinstance(op, Op):
        return False
    with torch.no_grad():
        for _ in range(2):  # a kernel's first results are verified with the reference, which does not count
            with _watched(op) as runs:
                copies = [v.clone() if a.mutated else v for a, v in zip(op.signature.arguments, values, strict=True)]
                positional, keyword = op.signature.arranged(copies)
                op(*positional, **keyword)
    return bool(runs)


FEWEST = 3
SHOWN = 32
"""Elements on which it is found out whether a reference goes by elements."""


def is_elementwise(op: Op | Adopted, values: Sequence[Any]) -> bool:
    """Whether each element of the results depends on one of each tensor: the reference gives the same for them in one
    row, and for a few of that row alone."""
    if isinstance(op, Op) and op._families.default.forward.reference.keeps_layout:
        return True
    arguments = op.signature.arguments
    tensors = [tensor for tensor in flatten(arguments, values) if tensor is not None]
    try:
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        if shape.numel() < FEWEST:
            return False  # one element alone shows nothing
        rows = [_wide(tensor).expand(shape).reshape(-1)[:SHOWN] for tensor in tensors]
        results = _reference(op, values, [_wide(tensor) for tensor in tensors])
        if not results or any(result.shape != shape for result in results):
            return False
        shown = [result.reshape(-1)[:SHOWN] for result in results]
        middle = slice(len(rows[0]) // 3, 1 + 2 * len(rows[0]) // 3)
        in_a_row, alone = _reference(op, values, rows), _reference(op, values, [row[middle] for row in rows])
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    return all(map(_alike, shown, in_a_row)) and all(map(_alike, [each[middle] for each in shown], alone))


def _reference(op: Op | Adopted, values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    arguments = op.signature.arguments
    fresh = iter(tensors)
    flat = [None if tensor is None else next(fresh).clone() for tensor in flatten(arguments, values)]
    with torch.no_grad():
        returned = op._inline_call(unflatten(arguments, values, flat))
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64) if tensor.is_floating_point() else tensor.detach()


def _alike(mine: torch.Tensor, other: torch.Tensor) -> bool:
    return mine.shape == other.shape and torch.allclose(mine, other, rtol=1e-9, atol=0.0, equal_nan=True)


@contextlib.contextmanager
def _watched(op: Op) -> Iterator[list[None]]:
    """Collects an entry each time the op's reference runs."""
    plain = op._families.plain
    function = plain.function
    runs: list[None] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        runs.append(None)
        return function(*args, **kwargs)

    plain.function = counted
    try:
        yield runs
    finally:
        plain.function = function
