"""Hypothesis strategies for calls of an op, built from its schema and its samples.

Tensors of a pointwise op have any shapes that broadcast. For other ops, each pattern of the samples (patterns.py) is
varied: dimensions that are equal in every sample stay equal, the others vary independently. The reference decides
whether a call is valid.
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
from .patterns import Pattern, has_literal, patterns_of

SIZES = (*range(1, 10), 0, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129)
DIMENSIONS = 4
T = TypeVar("T")


def calls(subject: Subject, most: int) -> st.SearchStrategy[Case]:
    """Calls with at most `most` elements per tensor, in the floating dtypes the reference takes; at level "quick",
    in one wide and one half type, since the kernels of each dtype must be compiled."""
    dtypes = subject.dtypes if subject.full else subject.wide_and_narrow
    found = [(dtype, patterns_of(subject, dtype, most)) for dtype in dtypes]
    kinds = [(dtype, _distinct(subject, patterns)) for dtype, patterns in found if patterns]
    if not kinds:
        raise Uncovered(f"{TOO_LARGE} to {most} elements")
    return _call(subject, kinds, most)


def beside_samples(subject: Subject, most: int) -> list[Case]:
    """Calls of the samples' smallest shapes with another value for one argument that is not a tensor, or without one
    optional tensor."""
    found = []
    for pattern in patterns_of(subject, subject.dtypes[0], most)[:1]:
        base = pattern.base
        for place, (argument, own) in enumerate(zip(base.arguments, base.values, strict=True)):
            others: list[Any] = []
            if argument.kind is Kind.OPTIONAL_TENSOR and own is not None:
                others = [None]
            elif not argument.is_tensor:
                seen = [case.values[place] for case in pattern.cases]
                others = [value for value in _candidates(argument, seen) if value != own and has_literal(value)]
            for value in others:
                found.append(
                    base.changed(argument.name, value, repr(value), f"{base.name}, {argument.name} = {value!r}")
                )
    return found


def _distinct(subject: Subject, patterns: Sequence[Pattern]) -> list[Pattern]:
    """For a pointwise op, whose shapes are drawn: one pattern for each choice of which tensors are present."""
    if not subject.elementwise:
        return list(patterns)
    first: dict[object, Pattern] = {}
    for pattern in patterns:
        first.setdefault(tuple((slot.argument, slot.element, slot.dtype) for slot in pattern.slots), pattern)
    return list(first.values())


@st.composite
def _call(draw: st.DrawFn, subject: Subject, kinds: Sequence[tuple[torch.dtype, list[Pattern]]], most: int) -> Case:
    dtype, patterns = _chosen(draw, kinds)
    pattern = _chosen(draw, patterns)
    like = _chosen(draw, pattern.cases) if pattern.frozen else pattern.base
    shapes = draw(_broadcastable(pattern)) if subject.elementwise else None
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
        name=f"generated, {short(dtype)}",
    )


def _chosen(draw: st.DrawFn, among: Sequence[T]) -> T:
    """By index: Hypothesis prints what it chooses from, and these contain tensors."""
    return among[draw(st.integers(0, len(among) - 1))]


def _size(*others: int) -> st.SearchStrategy[int]:
    """A single choice, so that Hypothesis can shrink it independently."""
    return st.sampled_from(tuple(dict.fromkeys((*SIZES, *others))))


@st.composite
def _broadcastable(draw: st.DrawFn, pattern: Pattern) -> list[tuple[int, ...]]:
    """Shapes that broadcast: the full shape, its last dimensions, some of its sizes replaced by 1, or no dimension."""
    rank = draw(st.integers(0, DIMENSIONS))
    full = tuple(draw(st.lists(_size(), min_size=rank, max_size=rank)))
    shapes = []
    for slot in pattern.slots:
        how = draw(st.sampled_from(("full", "full", "last", "ones", "none")))
        if how == "full" or pattern.base.arguments[slot.argument].mutated:  # an output is never broadcast
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
        elif group.is_constant:  # the op may require this size
            found.append(draw(st.sampled_from((*(usual,) * len(SIZES), *SIZES))))
        else:
            found.append(draw(_size(*group.sizes)))
    return found


@st.composite
def _laid(draw: st.DrawFn, pattern: Pattern, ndims: Sequence[int]) -> dict[int, str]:
    """Non-contiguous layouts for at most two of the tensors."""
    found = {}
    slots = draw(st.lists(st.integers(0, len(pattern.slots) - 1), max_size=2, unique=True)) if pattern.slots else []
    for index in slots:
        named = layouts.layouts_for(torch.empty((1,) * ndims[index]))
        if pattern.base.arguments[pattern.slots[index].argument].mutated:  # torch refuses to write to repeated elements
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
        if has_literal(value):  # else the value of the sample
            found[place] = value, repr(value)
    return found


def _value(argument: Argument, seen: Sequence[Any]) -> st.SearchStrategy[Any]:
    listed = st.sampled_from(_candidates(argument, seen))
    numbers = [each for each in seen if isinstance(each, float)]
    if not numbers or argument.type.rstrip("?") != "float":
        return listed
    between = st.floats(min(numbers) - 1, max(numbers) + 1)
    return st.one_of(listed, between.map(lambda number: round(number, 2)))


def _candidates(argument: Argument, seen: Sequence[Any]) -> list[Any]:
    """The values in the samples, and neighbouring ones."""
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
        places = [(each, place) for each in given for place in range(len(each))]
        others = [[*each[:at], each[at] + step, *each[at + 1 :]] for each, at in places for step in (1, -1)]
    found: list[Any] = []
    for each in (*seen, *others):
        if each not in found:
            found.append(each)
    return found
