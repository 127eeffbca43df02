"""Values that are not tensors while a row program is traced: shapes, sizes, and the pairs that max(dim) returns."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..functions import Call, Value, find

if TYPE_CHECKING:
    from ..specialise import Run


class ShapeOf:
    """The shape of a value."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.example = value.example.shape


class Several:
    """The results of one call, such as max(dim)."""

    def __init__(self, values: Sequence[Value], example: Any) -> None:
        self.values = values
        self.example = example

    def part(self, which: int | str) -> Value:
        return self.values[("values", "indices").index(which) if isinstance(which, str) else which]


def _is_counted_from_the_last(dimensions: slice) -> bool:
    return dimensions.start is not None and dimensions.start < 0 and (dimensions.stop is None or dimensions.stop < 0)


def of_shape(run: Run, target: Any, args: Any, kwargs: Any, example: Any) -> Any:
    """The value of a call that returns a shape, a size or a pair; None for any other call."""
    if target is getattr and args[1] == "shape":
        return ShapeOf(args[0])
    if target == "size" and isinstance(args[0], Value):
        dimensions = (*args[1:], *kwargs.values())
        return run.size(args[0], dimensions[0]) if dimensions else ShapeOf(args[0])
    if target is operator.getitem and isinstance(args[0], ShapeOf):
        value = args[0].value
        if isinstance(args[1], int):
            return run.size(value, args[1])
        if isinstance(args[1], slice):
            rank = len(args[0].example)
            run.shapes.counts_from_the_first |= not _is_counted_from_the_last(args[1])
            return tuple(run.size(value, d - rank) for d in range(rank)[args[1]])
        return None
    if isinstance(example, tuple) and all(isinstance(each, torch.Tensor) for each in example):
        entry = find(target)
        if entry is None:
            return None
        call = Call(run.builder, example[0].dtype, run.shapes)
        values: Any = entry[1](call, *args, **kwargs)
        made = [Value(run.builder, v.node, e, call.place) for v, e in zip(values, example, strict=True)]
        return Several(made, example)
    return None
