"""Hypothesis strategies for calls of an op, built from its schema and its samples.

Tensors of a pointwise op have any shapes that broadcast. Of other ops each kind of call among the samples (patterns.py)
is varied: dimensions that were of one size in every sample stay of one size, the others go their own ways. Whether that
is a call at all, the reference decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from hypothesis import assume
from hypothesis import strategies as st

from ...reference.signature import Argument, Kind
from .. import layouts
from ..outcome import Uncovered
from ..subject import TOO_LARGE, Subject, short
from .case import Case
from .patterns import Pattern, TensorSpec, patterns_of

__all__ = ["TensorSpec", "beside_samples", "calls"]

SIZES = (*range(1, 10), 0, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129)
DIMENSIONS = 4
T = TypeVar("T")


def calls(subject: Subject, most: int) -> st.SearchStrategy[Case]:
    """Calls with at most `most` elements a tensor, in the floating dtypes the reference takes; at level "quick", in
    one that is wide and one that is not, since each has kernels of its own to compile."""
    dtypes = subject.dtypes
    if not subject.full:
        dtypes = [*[d for d in dtypes if d.itemsize >= 4][:1], *[d for d in dtypes if d.itemsize < 4][:1]]
    found = [(dtype, patterns_of(subject, dtype, most)) for dtype in dtypes]
    kinds = [_Kind(dtype, tuple(_unlike(subject, patterns))) for dtype, patterns in found if patterns]
    if not kinds:
        raise Uncovered(f"{TOO_LARGE} to {most} elements")
    return _call(subject, kinds, most)


def beside_samples(subject: Subject, most: int) -> list[Case]:
    """Calls of the samples' smallest shapes with another value for one argument that is no tensor, or without one that
    may be left out."""
    found = []
    for pattern in patterns_of(subject, subject.dtypes[0], most)[:1]:
        for place, argument in enumerate(pattern.base.arguments):
            if argument.kind is Kind.OPTIONAL_TENSOR and pattern.base.values[place] is not None:
                name = f"{pattern.base.name}, {argument.name} = None"
                found.append(pattern.base.changed(argument.name, None, "None", name))
            if argument.is_tensor:
                continue
            for value in _listed(argument, [case.values[place] for case in pattern.cases]):
                if value != pattern.base.values[place] and _is_plain(value):
                    name = f"{pattern.base.name}, {argument.name} = {value!r}"
                    found.append(pattern.base.changed(argument.name, value, repr(value), name))
    return found


class _Kind:
    """No dataclass: Hypothesis would write down all that is in it, and a Pattern is full of tensors."""

    def __init__(self, dtype: torch.dtype, patterns: tuple[Pattern, ...]) -> None:
        self.dtype, self.patterns = dtype, patterns


def _unlike(subject: Subject, patterns: Sequence[Pattern]) -> list[Pattern]:
    """Shapes of a pointwise op are drawn: there, one pattern for each choice of tensors that are there at all."""
    if not subject.keeps_layout:
        return list(patterns)
    first: dict[object, Pattern] = {}
    for pattern in patterns:
        first.setdefault(tuple((slot.argument, slot.element, slot.dtype) for slot in pattern.slots), pattern)
    return list(first.values())


@st.composite
def _call(draw: st.DrawFn, subject: Subject, kinds: Sequence[_Kind], most: int) -> Case:
    kind = _chosen(draw, kinds)
    pattern = _chosen(draw, kind.patterns)
    like = _chosen(draw, pattern.cases) if pattern.frozen else pattern.base
    shapes = draw(_broadcastable(pattern)) if subject.keeps_layout else None
    sizes = () if shapes is not None else draw(_sizes(pattern, pattern.sizes_of(like)))
    assume(all(math.prod(shape) <= most for shape in shapes or pattern.shapes(sizes)))
    ndims = [len(shape) for shape in shapes] if shapes is not None else [slot.ndim for slot in pattern.slots]
    return pattern.case(
        sizes,
        like=like,
        shapes=shapes,
        seed=draw(st.integers(0, 9)),
        scale=draw(st.integers(0, max(len(slot.ranges) for slot in pattern.slots) - 1)),
        laid=draw(_laid(pattern, ndims)),
        values=draw(_values(pattern)),
        name=f"generated, {short(kind.dtype)}",
    )


def _chosen(draw: st.DrawFn, among: Sequence[T]) -> T:
    """By its number: Hypothesis writes down what it chooses from, and these hold tensors."""
    return among[draw(st.integers(0, len(among) - 1))]


def _size(*others: int) -> st.SearchStrategy[int]:
    """One choice, so that it can be made smaller by itself."""
    return st.sampled_from(tuple(dict.fromkeys((*SIZES, *others))))


@st.composite
def _broadcastable(draw: st.DrawFn, pattern: Pattern) -> list[tuple[int, ...]]:
    """One shape, and tensors of it, of its last dimensions, with sizes of one in it, or with no dimension at all."""
    rank = draw(st.integers(0, DIMENSIONS))
    full = tuple(draw(st.lists(_size(), min_size=rank, max_size=rank)))
    shapes = []
    for slot in pattern.slots:
        how = draw(st.sampled_from(("full", "full", "last", "ones", "none")))
        if how == "full" or pattern.base.arguments[slot.argument].mutated:  # what is written to does not grow
            shapes.append(full)
        elif how == "last":
            shapes.append(full[draw(st.integers(0, rank)) :])
        elif how == "ones":
            ones = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
            shapes.append(tuple(1 if one else size for size, one in zip(full, ones, strict=True)))
        else:
            shapes.append(())
    return shapes


@st.composite
def _sizes(draw: st.DrawFn, pattern: Pattern, like: Sequence[int]) -> list[int]:
    found = []
    for number, (group, usual) in enumerate(zip(pattern.groups, like, strict=True)):
        if number in pattern.frozen:
            found.append(usual)
        elif group.is_constant:  # which it may have to be
            found.append(draw(st.sampled_from((*(usual,) * len(SIZES), *SIZES))))
        else:
            found.append(draw(_size(*group.sizes)))
    return found


@st.composite
def _laid(draw: st.DrawFn, pattern: Pattern, ndims: Sequence[int]) -> dict[int, str]:
    """None, one, or two of the tensors are not contiguous."""
    found = {}
    slots = draw(st.lists(st.integers(0, len(pattern.slots) - 1), max_size=2, unique=True)) if pattern.slots else []
    for index in slots:
        named = layouts.layouts_for(torch.empty((1,) * ndims[index]))
        if pattern.base.arguments[pattern.slots[index].argument].mutated:  # torch refuses to write to what is repeated
            named = [layout for layout in named if layout not in layouts.CHANGING]
        found[index] = draw(st.sampled_from(named))
    return found


@st.composite
def _values(draw: st.DrawFn, pattern: Pattern) -> dict[int, tuple[Any, str]]:
    found = {}
    for place, argument in enumerate(pattern.base.arguments):
        if argument.is_tensor:
            continue
        seen = [case.values[place] for case in pattern.cases]
        value = draw(_value(argument, seen))
        if _is_plain(value):  # else as the sample has it
            found[place] = value, repr(value)
    return found


def _value(argument: Argument, seen: Sequence[Any]) -> st.SearchStrategy[Any]:
    listed = st.sampled_from(_listed(argument, seen))
    numbers = [each for each in seen if isinstance(each, float)]
    if not numbers or argument.type.rstrip("?") != "float":
        return listed
    between = st.floats(min(numbers) - 1, max(numbers) + 1)
    return st.one_of(listed, between.map(lambda number: round(number, 2)))


def _listed(argument: Argument, seen: Sequence[Any]) -> list[Any]:
    """What the samples have, and what lies beside that."""
    numbers = [each for each in seen if isinstance(each, (int, float)) and not isinstance(each, bool)]
    kind = argument.type.rstrip("?")
    others: list[Any] = []
    if kind == "bool":
        others = [False, True]
    elif numbers and kind == "float":
        others = [0.0, *(-each for each in numbers)]
    elif numbers and kind in ("SymInt", "int"):
        others = list(range(math.floor(min(numbers)) - 1, math.ceil(max(numbers)) + 2))
    elif kind in ("SymInt[]", "int[]"):
        given = [list(each) for each in seen if isinstance(each, (list, tuple))]
        others = [_moved(each, place, step) for each in given for place in range(len(each)) for step in (1, -1)]
    found: list[Any] = []
    for each in (*seen, *others):
        if each not in found:
            found.append(each)
    return found


def _moved(numbers: list[int], place: int, step: int) -> list[int]:
    return [*numbers[:place], numbers[place] + step, *numbers[place + 1 :]]


def _is_plain(value: Any) -> bool:
    """Whether Python writes it down as it is."""
    return not isinstance(value, torch.device) and not (isinstance(value, float) and not math.isfinite(value))
