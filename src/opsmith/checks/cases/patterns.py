"""The kinds of calls an op accepts, derived from its samples: which dimensions are equal, which values fill them."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...reference.signature import flatten
from .. import layouts
from ..subject import SMALL, Subject
from .case import Case, ranks

Range = tuple[float, float]
MOST_AMONG = 64
"""The most distinct integers that `TensorSpec.among` lists."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to generate: random numbers between two others, in a layout of layouts.py or contiguous."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float = -2.0
    high: float = 2.0
    seed: int = 0
    layout: str = ""
    among: tuple[int, ...] = ()
    """The integers to draw from, instead of all between the two."""

    def build(self, device: str = "cpu") -> torch.Tensor:
        tensor: torch.Tensor = eval(self._contiguous(device), {"torch": torch})
        return layouts.LAYOUTS[self.layout](tensor) if self.layout else tensor

    def code(self, device: str = "cpu") -> str:
        """The expression that makes it."""
        contiguous = self._contiguous(device)
        return layouts.code(self.layout).format(contiguous) if self.layout else contiguous

    def _contiguous(self, device: str) -> str:
        generator = f"generator=torch.Generator().manual_seed({self.seed})"
        if self.among:
            made = f"torch.tensor({self.among})[torch.randint(0, {len(self.among)}, {self.shape}, {generator})]"
        elif self.dtype is torch.bool or is_integer(self.dtype):
            made = f"torch.randint({int(self.low)}, {int(self.high) + 1}, {self.shape}, {generator})"
        else:
            shape = (*self.shape, 2) if self.dtype.is_complex else self.shape
            made = f"torch.empty({shape}, dtype=torch.float64).uniform_({self.low}, {self.high}, {generator})"
            made = f"torch.view_as_complex({made}).clone()" if self.dtype.is_complex else made  # not a view
        return f"{made}.to({device!r}, {self.dtype})"


@dataclass(frozen=True)
class Slot:
    """One tensor of the arguments: the position of its argument, its index in a list, and what it was in the samples.
    `structured`: sorted integers, such as the offsets of rows, which random ones cannot replace."""

    argument: int
    element: int | None
    ndim: int
    dtype: torch.dtype
    ranges: tuple[Range, ...]
    structured: bool
    among: tuple[int, ...] = ()
    """The integers of all samples, where negative ones have a meaning: -100 and 0 to 9."""


@dataclass(frozen=True)
class Group:
    """Dimensions, each as (slot, axis), that have the same size in every sample of the pattern."""

    places: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]

    @property
    def is_constant(self) -> bool:
        return len(self.sizes) > 1 and len(set(self.sizes)) == 1


@dataclass(frozen=True, repr=False)
class Pattern:
    """Calls whose tensors have the same numbers of dimensions."""

    cases: tuple[Case, ...]
    slots: tuple[Slot, ...]
    groups: tuple[Group, ...]
    device: str
    frozen: frozenset[int] = field(default=frozenset())
    """Groups with a dimension of a structured tensor."""

    @property
    def base(self) -> Case:
        """The smallest case without empty tensors; else the first."""
        filled = [case for case in self.cases if case.has_elements]
        return min(filled, key=lambda case: case.numel) if filled else self.cases[0]

    def sizes_of(self, case: Case) -> list[int]:
        """The size of each group in a case."""
        tensors = case.every_tensor()
        return [tensors[slot].shape[axis] for slot, axis in (group.places[0] for group in self.groups)]

    def shapes(self, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of the tensors, for these sizes of the groups."""
        of = {place: size for group, size in zip(self.groups, sizes, strict=True) for place in group.places}
        return [tuple(of[index, axis] for axis in range(slot.ndim)) for index, slot in enumerate(self.slots)]

    def described(self, group: int, size: int) -> str:
        """'x.shape[0] = 7'"""
        slot, axis = self.groups[group].places[0]
        return f"{self.base.arguments[self.slots[slot].argument].name}.shape[{axis}] = {size}"

    def numel(self, sizes: Sequence[int]) -> int:
        """Elements of the largest tensor, for these sizes of the groups."""
        return max((math.prod(shape) for shape in self.shapes(sizes)), default=0)

    def case(
        self,
        sizes: Sequence[int],
        *,
        like: Case | None = None,
        shapes: Sequence[tuple[int, ...]] | None = None,
        seed: int = 0,
        scale: int = 0,
        laid: Mapping[int, str] | None = None,
        values: Mapping[int, tuple[Any, str]] | None = None,
        name: str = "",
    ) -> Case:
        """The call whose dimensions have these sizes, or whose slots have these `shapes`.

        Args:
            like: the sample to take other arguments from.
            scale: selects the sample whose range of numbers is used.
            laid: layouts of slots.
            values: other values for arguments that are not tensors, each with its code.
        """
        like, shapes = like or self.base, shapes or self.shapes(sizes)
        numbered = enumerate(zip(self.slots, shapes, strict=True))

        def generated(name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, str] | None:
            index, (slot, shape) = next(numbered)
            if slot.structured:
                return None
            low, high = slot.ranges[min(scale, len(slot.ranges) - 1)]
            layout = (laid or {}).get(index, "")
            spec = TensorSpec(shape, slot.dtype, low, high, seed * 16 + index, layout, slot.among)
            return spec.build(self.device), spec.code(self.device)

        made = like.each_named(generated).named(name or like.name)
        for place, (value, code) in (values or {}).items():
            made = made.changed(like.arguments[place].name, value, code)
        return _without_sample(made, like)


def patterns_of(subject: Subject, dtype: torch.dtype = torch.float32, limit: int = SMALL) -> list[Pattern]:
    """In the order of the samples."""
    by_ranks: dict[Any, list[Case]] = {}
    for case in subject.cases(dtype, limit):
        by_ranks.setdefault(ranks(case), []).append(case)
    return [_pattern(cases, subject.device) for cases in by_ranks.values()]


def flat_pattern(subject: Subject, dtype: torch.dtype) -> Pattern:
    """Of a pointwise op: every tensor has one dimension, all of one size; or none, as in the first sample."""
    first = patterns_of(subject, dtype)[0]
    cases = [first.case((), shapes=[(size,) if slot.ndim else () for slot in first.slots]) for size in (8, 9)]
    return _pattern(cases, subject.device)


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """A floating or complex tensor in double precision."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def lengthened(tensor: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """The tensor repeated along a dimension, up to that length."""
    shape = [length if dim == axis else size for dim, size in enumerate(tensor.shape)]
    long = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    for start in range(0, length, tensor.shape[axis]):
        count = min(tensor.shape[axis], length - start)
        long.narrow(axis, start, count).copy_(tensor.narrow(axis, 0, count))
    return long


def _pattern(cases: Sequence[Case], device: str) -> Pattern:
    tensors = [case.every_tensor() for case in cases]
    columns = iter(zip(*tensors, strict=True))
    slots = []
    for place, (argument, value) in enumerate(zip(cases[0].arguments, cases[0].values, strict=True)):
        several = isinstance(value, (list, tuple))
        for index, tensor in enumerate(flatten([argument], [value])):
            if tensor is not None:
                slots.append(_slot(place, index if several else None, next(columns)))
    seen: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for index, slot in enumerate(slots):
        for axis in range(slot.ndim):
            seen.setdefault(tuple(each[index].shape[axis] for each in tensors), []).append((index, axis))
    groups = tuple(Group(tuple(places), sizes) for sizes, places in seen.items())
    frozen = [n for n, group in enumerate(groups) if any(slots[slot].structured for slot, _ in group.places)]
    return Pattern(tuple(cases), tuple(slots), groups, device, frozenset(frozen))


def _slot(argument: int, element: int | None, tensors: Sequence[torch.Tensor]) -> Slot:
    first = tensors[0]
    whole = is_integer(first.dtype)
    # No differences: those of unsigned numbers wrap.
    ordered = whole and first.ndim > 0 and all(bool((t[..., 1:] >= t[..., :-1]).all()) for t in tensors)
    structured = ordered and any(tensor.numel() > 2 for tensor in tensors)
    among = _among(tensors) if whole else ()
    return Slot(argument, element, first.ndim, first.dtype, _ranges(tensors), structured, among)


def _among(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Isolated negative numbers have a meaning, such as an ignored class; numbers that are merely sparse do not."""
    seen = sorted({int(number) for tensor in tensors for number in tensor.unique().tolist()})
    negative = [number for number in seen if number < 0]
    return tuple(seen) if negative and seen[-1] >= 0 and len(seen) <= MOST_AMONG else ()


def _ranges(tensors: Sequence[torch.Tensor]) -> tuple[Range, ...]:
    """Of each sample, largest sample first."""
    filled = sorted((tensor for tensor in tensors if tensor.numel()), key=lambda tensor: -tensor.numel())
    if filled and filled[0].numel() == 1:
        filled = [torch.stack([tensor.reshape(()) for tensor in filled])]
    return tuple(dict.fromkeys(_range(tensor) for tensor in filled)) or ((-1.0, 1.0),)


def is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _range(tensor: torch.Tensor) -> Range:
    """The smallest and largest number, rounded inwards to three digits."""
    numbers = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).to(torch.float64)
    numbers = numbers[numbers.isfinite()]
    if not numbers.numel():
        return -1.0, 1.0
    low, high = float(numbers.min()), float(numbers.max())
    if tensor.dtype.is_floating_point or tensor.is_complex():
        shorter = _shortened(low, math.ceil), _shortened(high, math.floor)
        return shorter if shorter[0] < shorter[1] else (low, high)
    return low, high


def _shortened(number: float, towards: Any) -> float:
    if number == 0.0:
        return 0.0
    digits = 2 - math.floor(math.log10(abs(number)))
    return float(round(towards(number * 10.0**digits) / 10.0**digits, max(digits, 0)))


def _without_sample(made: Case, like: Case) -> Case:
    """Without the lines that make the sample, where all that is left of it has a literal."""
    lines = made.lines[len(like.lines) :]
    bound = {line.partition(" = ")[0] for line in lines}
    plain = []
    for argument, value in zip(made.arguments, made.values, strict=True):
        if argument.name in bound:
            continue
        if not has_literal(value):
            return made
        plain.append(f"{argument.name} = {value!r}")
    return Case(made.name, made.arguments, made.values, (*lines, *plain))


def has_literal(value: Any) -> bool:
    """Whether repr(value) is Python code for it."""
    if isinstance(value, (list, tuple)):
        return all(has_literal(each) for each in value)
    if isinstance(value, (float, complex)):
        return cmath.isfinite(value)
    return value is None or isinstance(value, (bool, int, str, torch.dtype))
