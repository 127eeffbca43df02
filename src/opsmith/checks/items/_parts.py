"""Calls that split into independent calls along a dimension: any pointwise call, a batch elsewhere.

What a call of billions of elements gives can then be compared a window at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...reference.signature import flatten, unflatten
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import Pattern, flat_pattern, patterns_of
from ..subject import Subject, present, short
from ._choice import deterministic

TRIED = 5
"""Parts of the call on which it is found out whether they know of each other."""


@dataclass(frozen=True)
class Plan:
    """`axes` is the dimension along which each tensor is cut, None for one that all parts share; `result_axes` that
    of each result. `sizes` are those of the pattern's other groups. `elements`: of the inputs and of the results in one
    part; `largest`: of the largest tensor among them."""

    subject: Subject
    pattern: Pattern
    sizes: tuple[int, ...]
    group: int
    dtype: torch.dtype
    axes: tuple[int | None, ...]
    result_axes: tuple[int, ...] = ()
    elements: tuple[int, int] = (0, 0)
    largest: int = 1

    def case(self, parts: int) -> Case:
        """The call of so many parts."""
        sizes = [parts if index == self.group else size for index, size in enumerate(self.sizes)]
        return self.pattern.case(sizes, seed=self.subject.seed, name=self.describe(parts))

    def describe(self, parts: int) -> str:
        """'x.shape[0] = 7, bfloat16'"""
        slot, axis = self.pattern.groups[self.group].places[0]
        name = self.pattern.base.arguments[self.pattern.slots[slot].argument].name
        return f"{name}.shape[{axis}] = {parts}, {short(self.dtype)}"

    def parts_for(self, elements: int) -> int:
        """So many that one tensor has more than that many elements."""
        return math.ceil(elements / self.largest) + 1

    def tensors(self, values: Sequence[Any]) -> list[torch.Tensor]:
        return present(self.subject.arguments, values)

    def filled(self, values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        fresh = iter(tensors)
        flat = [None if tensor is None else next(fresh) for tensor in flatten(self.subject.arguments, values)]
        return unflatten(self.subject.arguments, values, flat)

    def cut(self, values: Sequence[Any], start: int, parts: int) -> list[Any]:
        """The call of some of the parts."""
        pairs = zip(self.tensors(values), self.axes, strict=True)
        return self.filled(values, [t if axis is None else t.narrow(axis, start, parts) for t, axis in pairs])


def plan(subject: Subject, dtype: torch.dtype) -> Plan | None:
    """Along the first dimension that allows it, other dimensions as small as may be."""
    for pattern in [flat_pattern(subject, dtype)] if subject.keeps_layout else patterns_of(subject, dtype):
        if not pattern.groups:
            continue
        deterministic(subject, pattern.base)
        pairs = zip(pattern.groups, pattern.sizes_of(pattern.base), strict=True)
        sizes = tuple(size if group.is_constant else min(size, 2) for group, size in pairs)
        for group in range(len(pattern.groups)):
            found = None if group in pattern.frozen else _along(subject, pattern, sizes, group, dtype)
            if found is not None:
                return found
    return None


def _along(subject: Subject, pattern: Pattern, sizes: tuple[int, ...], group: int, dtype: torch.dtype) -> Plan | None:
    places = pattern.groups[group].places
    if len(dict(places)) != len(places):
        return None  # two dimensions of one tensor
    axes = tuple(dict(places).get(slot) for slot in range(len(pattern.slots)))
    bare = Plan(subject, pattern, sizes, group, dtype, axes)
    whole, more = bare.case(TRIED), bare.case(TRIED + 1)
    if not (taken(subject, whole) and taken(subject, more)):
        return None
    results, others = _exactly(subject, whole.values), _exactly(subject, more.values)
    grown = [
        [axis for axis in range(mine.ndim) if mine.shape[axis] != other.shape[axis]]
        for mine, other in zip(results, others, strict=True)
    ]
    if not results or any(len(each) != 1 for each in grown):
        return None
    result_axes = tuple(each[0] for each in grown)
    for part in range(TRIED):
        alone = _exactly(subject, bare.cut(whole.values, part, 1))
        for mine, other, axis in zip(results, alone, result_axes, strict=True):
            if not torch.allclose(mine.narrow(axis, part, 1), other, rtol=1e-9, atol=0.0):
                return None
    tensors = [t for t, axis in zip(bare.tensors(whole.values), axes, strict=True) if axis is not None]
    elements = sum(t.numel() for t in tensors) // TRIED, sum(r.numel() for r in results) // TRIED
    largest = max(tensor.numel() for tensor in (*tensors, *results)) // TRIED
    return Plan(subject, pattern, sizes, group, dtype, axes, result_axes, elements, largest)


def _exactly(subject: Subject, values: Sequence[Any]) -> list[torch.Tensor]:
    """The reference on the CPU in float64: on a GPU, and in half types, bits may depend on how many parts there are."""
    flat = [None if tensor is None else tensor.cpu() for tensor in flatten(subject.arguments, values)]
    wide = [t.double() if t is not None and t.is_floating_point() else t for t in flat]
    return [result.detach() for result in subject.reference(unflatten(subject.arguments, values, wide))]
