"""Calls that split into independent calls along a dimension: any pointwise call, a batch elsewhere.

The results of a call with billions of elements can then be compared a window at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import values as call_values
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import Pattern, flat_pattern, patterns_of
from ..subject import Subject, present, short
from ._cases import skip_random

TRIED = 5
"""Parts of the call on which it is determined whether they are independent."""


@dataclass(frozen=True)
class Plan:
    """`axes`: the dimension along which each tensor is cut, None for one that all parts share; `result_axes`: that of
    each result. `sizes`: those of the pattern's other groups. `elements`: of the inputs and of the results in one part;
    `largest`: of the largest tensor among them."""

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
        """The call with so many parts."""
        sizes = [parts if index == self.group else size for index, size in enumerate(self.sizes)]
        return self.pattern.case(sizes, seed=self.subject.seed, name=self.describe(parts))

    def describe(self, parts: int) -> str:
        """'x.shape[0] = 7, bfloat16'"""
        return f"{self.pattern.described(self.group, parts)}, {short(self.dtype)}"

    def parts_for(self, elements: int) -> int:
        """The number of parts for which one tensor has more than that many elements."""
        return math.ceil(elements / self.largest) + 1


def plan(subject: Subject, dtype: torch.dtype) -> Plan | None:
    """Along the first dimension that allows it, other dimensions as small as may be."""
    for pattern in [flat_pattern(subject, dtype)] if subject.keeps_layout else patterns_of(subject, dtype):
        if not pattern.groups:
            continue
        skip_random(subject, pattern.base)
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
    tensors = present(subject.arguments, whole.values)
    for part in range(TRIED):
        cut = [t if axis is None else t.narrow(axis, part, 1) for t, axis in zip(tensors, axes, strict=True)]
        alone = _exactly(subject, call_values.with_tensors(subject.arguments, whole.values, cut))
        for mine, other, axis in zip(results, alone, result_axes, strict=True):
            if not torch.allclose(mine.narrow(axis, part, 1), other, rtol=1e-9, atol=0.0):
                return None
    tensors = [t for t, axis in zip(tensors, axes, strict=True) if axis is not None]
    elements = sum(t.numel() for t in tensors) // TRIED, sum(r.numel() for r in results) // TRIED
    largest = max(tensor.numel() for tensor in (*tensors, *results)) // TRIED
    return Plan(subject, pattern, sizes, group, dtype, axes, result_axes, elements, largest)


def _exactly(subject: Subject, values: Sequence[Any]) -> list[torch.Tensor]:
    """The reference on the CPU in float64: on a GPU, and in half types, bits may depend on how many parts there are."""
    wide = call_values.mapped(
        subject.arguments, values, lambda t: t.cpu().double() if t.is_floating_point() else t.cpu()
    )
    return [result.detach() for result in subject.reference(wide)]
