"""The layout of results for references and fake tensors: TensorIterator's.

The launch planner (launch/planner) follows the same rule for the results of kernels. The rule is also here in Python
because the sizes of a fake tensor may be symbolic; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .levels import Level

Sizes = tuple[int, ...]


def broadcast(shapes: Sequence[Sequence[int]]) -> Sizes | None:
    """The shape that all broadcast to, or None if they do not."""
    shape: list[int] = [1] * max((len(each) for each in shapes), default=0)
    for each in shapes:
        for position, size in enumerate(reversed(each), start=1):
            if shape[-position] == 1:
                shape[-position] = size
            elif size != 1 and size != shape[-position]:
                return None
    return tuple(shape)


def full_shape(level: Level, tensors: Sequence[torch.Tensor | None]) -> Sizes | None:
    """The shape of all results, before any is summed; None if they differ."""
    shapes = {
        broadcast([tuple(tensors[slot].shape) for slot in group])  # type: ignore[union-attr]
        for group in level.shaped_by
    }
    return shapes.pop() if len(shapes) == 1 else None


def result_strides(sizes: Sizes, tensors: Sequence[torch.Tensor]) -> Sizes:
    """The strides of a new result of these sizes, computed from these tensors."""
    shape = broadcast([tuple(tensor.shape) for tensor in tensors]) or sizes
    relevant = [tensor for tensor in tensors if broadcast([shape, tuple(tensor.shape)]) == shape]
    return _dense_strides(sizes, _order(shape, relevant), len(shape))


def _order(shape: Sizes, tensors: Sequence[torch.Tensor]) -> Sequence[int]:
    """The dimensions of `shape` from the innermost to the outermost."""
    ndim = len(shape)
    order = list(range(ndim - 1, -1, -1))
    if ndim < 2 or all(tuple(tensor.shape) == shape and _is_contiguous(tensor) for tensor in tensors):
        return order
    strides_of = [_expanded(tensor, shape) for tensor in tensors]

    def compare(first: int, second: int) -> int:
        """1 if `first` must lie outside of `second`, -1 if inside, 0 if no tensor decides."""
        for strides in strides_of:
            if strides[first] == 0 or strides[second] == 0:
                continue
            if strides[first] != strides[second]:
                return -1 if strides[first] < strides[second] else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    for index in range(1, ndim):
        moving = index
        for other in range(index - 1, -1, -1):
            comparison = compare(order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    return order


def _expanded(tensor: torch.Tensor, shape: Sizes) -> Sizes:
    """The strides of a tensor expanded to `shape`: zero where it is repeated."""
    missing = len(shape) - tensor.dim()
    sizes = zip(tensor.shape, tensor.stride(), shape[missing:], strict=True)
    return (0,) * missing + tuple(0 if size == 1 and full != 1 else stride for size, stride, full in sizes)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _dense_strides(sizes: Sizes, order: Sequence[int], ndim: int) -> Sizes:
    """Strides without gaps, in the order of the `ndim` dimensions that a result broadcasts to."""
    missing = ndim - len(sizes)
    strides: list[Any] = [1] * len(sizes)
    step = 1
    for dimension in order:
        if dimension >= missing:
            strides[dimension - missing] = step
            size = sizes[dimension - missing]
            if not isinstance(size, int) or size > 1:
                step = step * size
    return tuple(strides)
