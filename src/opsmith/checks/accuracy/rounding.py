"""Where an op rounds: once in its kernels, or at every step where torch runs the reference.

A kernel computes half types in float32 and rounds once. An op without a kernel for these arguments runs its reference
in the half type, which rounds each intermediate: it only has to be as accurate as torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from .. import values as call_values
from .budget import HALF_TYPES
from .evaluate import evaluate, floating_dtypes
from .truth import Rounding


def rounding_of(op: Op | Adopted, values: Sequence[Any], gradients: bool = True) -> Rounding:
    """Determined by a call: does its forward run the reference, and does its backward?"""
    pointwise = is_elementwise(op, values)
    if not isinstance(op, Op) or not any(dtype in HALF_TYPES for dtype in floating_dtypes(values)):
        return Rounding(pointwise=pointwise)
    written = op._families.in_use().differentiable.written_gradient is not None  # in torch's operators
    in_forward = 0

    def called(args: Sequence[Any]) -> Any:
        nonlocal in_forward
        before = len(runs)
        returned = call_values.call(op, args)
        in_forward = len(runs) - before
        return returned

    with counting_reference(op) as runs:
        for _ in range(2):  # the first results of a kernel are verified with the reference, which does not count
            runs.clear()
            evaluate(op.signature.arguments, called, values, gradients=gradients)
    in_backward = len(runs) - in_forward
    gradient = written or in_backward > 0 or not gradients
    return Rounding(in_forward > 0, gradient, pointwise, runs_reference=in_forward > 0)


def reference_runs(op: Op | Adopted, values: Sequence[Any]) -> bool:
    """Whether the forward of a call runs the reference."""
    if not isinstance(op, Op):
        return False
    with torch.no_grad(), counting_reference(op) as runs:
        for _ in range(2):  # the first results of a kernel are verified with the reference, which does not count
            runs.clear()
            call_values.call(op, call_values.copied(op.signature.arguments, values))
    return bool(runs)


FEWEST = 3
SHOWN = 32
"""The number of elements on which `is_elementwise` tests the reference."""


def is_elementwise(op: Op | Adopted, values: Sequence[Any]) -> bool:
    """Whether each element of the results depends only on the elements at its position: the reference gives the same
    results for the elements as one row, and for a part of that row."""
    if isinstance(op, Op) and (reference := op._families.default.forward.reference).keeps_layout:
        return reference.elementwise
    present = [tensor.detach() for tensor in call_values.present(op.signature.arguments, values)]
    tensors = [tensor.double() if tensor.is_floating_point() else tensor for tensor in present]
    try:
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        if shape.numel() < FEWEST:
            return False  # too few elements to show a dependence
        rows = [tensor.expand(shape).reshape(-1)[:SHOWN] for tensor in tensors]
        results = _reference(op, values, tensors)
        if not results or any(result.shape != shape for result in results):
            return False
        whole = [result.reshape(-1)[:SHOWN] for result in results]
        middle = slice(len(rows[0]) // 3, 1 + 2 * len(rows[0]) // 3)
        in_a_row, part = _reference(op, values, rows), _reference(op, values, [row[middle] for row in rows])
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    return all(map(_alike, whole, in_a_row)) and all(map(_alike, [each[middle] for each in whole], part))


def _reference(op: Op | Adopted, values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    copies = [tensor.clone() for tensor in tensors]
    with torch.no_grad():
        return call_values.listed(op._inline_call(call_values.with_tensors(op.signature.arguments, values, copies)))


def _alike(mine: torch.Tensor, other: torch.Tensor) -> bool:
    return mine.shape == other.shape and torch.allclose(mine, other, rtol=1e-9, atol=0.0, equal_nan=True)


@contextlib.contextmanager
def counting_reference(op: Op) -> Iterator[list[None]]:
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
