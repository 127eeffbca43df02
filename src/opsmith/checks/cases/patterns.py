"""The kinds of calls an op accepts, learned from its samples: which dimensions are linked, which values fill them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...reference.signature import Argument
from .. import layouts
from ..subject import SMALL, Subject
from .acceptance import largest_result
from .case import Case, ranks

Range = tuple[float, float]
MOST_AMONG = 64
"""Integers that are drawn from one by one."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be made: numbers between two others, drawn by a seed, in a layout of layouts.py or contiguous."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float = -2.0
    high: float = 2.0
    seed: int = 0
    layout: str = ""
    among: tuple[int, ...] = ()
    """The integers to draw from, instead of all between the two."""

    def build(self, device: str = "cpu") -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        if self.among:
            tensor = torch.tensor(self.among)[torch.randint(0, len(self.among), self.shape, generator=generator)]
        elif self.dtype is torch.bool or is_integer(self.dtype):
            tensor = torch.randint(int(self.low), int(self.high) + 1, self.shape, generator=generator)
        else:
            pairs = (2,) if self.dtype.is_complex else ()
            tensor = torch.empty((*self.shape, *pairs), dtype=torch.float64)
            tensor = tensor.uniform_(self.low, self.high, generator=generator)
            tensor = torch.view_as_complex(tensor).clone() if pairs else tensor  # no view of another tensor
        tensor = tensor.to(device, self.dtype)
        return layouts.LAYOUTS[self.layout](tensor) if self.layout else tensor

    def code(self, device: str = "cpu") -> str:
        """The expression that makes it."""
        generator = f"generator=torch.Generator().manual_seed({self.seed})"
        if self.among:
            made = f"torch.tensor({self.among})[torch.randint(0, {len(self.among)}, {self.shape}, {generator})]"
        elif self.dtype is torch.bool or is_integer(self.dtype):
            made = f"torch.randint({int(self.low)}, {int(self.high) + 1}, {self.shape}, {generator})"
        else:
            shape = (*self.shape, 2) if self.dtype.is_complex else self.shape
            made = f"torch.empty({shape}, dtype=torch.float64).uniform_({self.low}, {self.high}, {generator})"
            made = f"torch.view_as_complex({made}).clone()" if self.dtype.is_complex else made
        made = f"{made}.to({device!r}, {self.dtype})"
        return layouts.code(self.layout).format(made) if self.layout else made


@dataclass(frozen=True)
class Slot:
    """One tensor of the arguments: its argument's place, its own among those of a list, and what it was in the
    samples. `structured`: integers in order, as the offsets of rows are: others would be no valid call."""

    argument: int
    element: int | None
    ndim: int
    dtype: torch.dtype
    ranges: tuple[Range, ...]
    structured: bool
    among: tuple[int, ...] = ()
    """The integers of all samples, where they leave out some between the smallest and the largest: -100 and 0 to 9."""


@dataclass(frozen=True)
class Group:
    """Dimensions, each as (slot, axis), that were of one size in every sample of the pattern."""

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
    """Groups that a structured tensor has part in."""

    @property
    def base(self) -> Case:
        """The smallest case with elements in it; the first where all are empty."""
        filled = [case for case in self.cases if case.has_elements]
        return min(filled, key=lambda case: case.numel) if filled else self.cases[0]

    def sizes_of(self, case: Case) -> list[int]:
        """The size of each group in a case."""
        tensors = [_tensor_at(case, slot) for slot in self.slots]
        return [tensors[group.places[0][0]].shape[group.places[0][1]] for group in self.groups]

    def shapes(self, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """Of the tensors, where the groups have these sizes."""
        of = {place: size for group, size in zip(self.groups, sizes, strict=True) for place in group.places}
        return [tuple(of[index, axis] for axis in range(slot.ndim)) for index, slot in enumerate(self.slots)]

    def numel(self, sizes: Sequence[int]) -> int:
        """Elements of the largest of them, before it is made."""
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
        """The call with dimensions of these sizes; or with `shapes`, one a slot, where they are given outright. `scale`
        picks one of the samples whose range of numbers is kept, `laid` gives slots a layout, `values` other values to
        arguments that are no tensors, each with its code."""
        like = like or self.base
        specs = [
            _spec(index, slot, shape, seed, scale, (laid or {}).get(index, ""))
            for index, (slot, shape) in enumerate(zip(self.slots, shapes or self.shapes(sizes), strict=True))
        ]
        made = Case(name or like.name, like.arguments, like.values, like.lines)
        changed = dict(values or {})
        for place, argument in enumerate(like.arguments):
            own = [(spec, slot) for spec, slot in zip(specs, self.slots, strict=True) if slot.argument == place]
            if place in changed:
                made = made.changed(argument.name, *changed[place])
            elif own and not any(slot.structured for _, slot in own):
                made = made.changed(argument.name, *self._built(argument, [spec for spec, _ in own], made))
        return _without_sample(made, like)

    def _built(self, argument: Argument, specs: Sequence[TensorSpec], case: Case) -> tuple[Any, str]:
        value = case[argument.name]
        if isinstance(value, torch.Tensor):
            return specs[0].build(self.device), specs[0].code(self.device)
        made = iter(specs)
        pairs = [None if each is None else next(made) for each in value]
        built = [None if spec is None else spec.build(self.device) for spec in pairs]
        return built, f"[{', '.join('None' if spec is None else spec.code(self.device) for spec in pairs)}]"


def patterns_of(subject: Subject, dtype: torch.dtype = torch.float32, limit: int = SMALL) -> list[Pattern]:
    """In the order of the samples."""
    by_ranks: dict[Any, list[Case]] = {}
    for case in subject.cases(dtype, limit):
        by_ranks.setdefault(ranks(case), []).append(case)
    return [_pattern(cases, subject.device) for cases in by_ranks.values()]


def flat_pattern(subject: Subject, dtype: torch.dtype) -> Pattern:
    """Of a pointwise op: every tensor has one dimension, of one size; none where it has none in the first sample."""
    first = patterns_of(subject, dtype)[0]
    cases = [first.case((), shapes=[(size,) if slot.ndim else () for slot in first.slots]) for size in (8, 9)]
    return _pattern(cases, subject.device)


def _spec(index: int, slot: Slot, shape: tuple[int, ...], seed: int, scale: int, layout: str) -> TensorSpec:
    low, high = slot.ranges[min(scale, len(slot.ranges) - 1)]
    return TensorSpec(shape, slot.dtype, low, high, seed * 16 + index, layout, slot.among)


def shapes_are_static(subject: Subject, case: Case) -> bool:
    """Whether the shapes of the results depend only on the shapes of the inputs."""
    return largest_result(subject, case) is not None


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """In double precision, where it is of floating or complex numbers."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def lengthened(tensor: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """The tensor again and again along a dimension, up to that length."""
    shape = [length if dim == axis else size for dim, size in enumerate(tensor.shape)]
    long = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    for start in range(0, length, tensor.shape[axis]):
        count = min(tensor.shape[axis], length - start)
        long.narrow(axis, start, count).copy_(tensor.narrow(axis, 0, count))
    return long


def _pattern(cases: Sequence[Case], device: str) -> Pattern:
    slots = []
    for place, (argument, value) in enumerate(zip(cases[0].arguments, cases[0].values, strict=True)):
        if isinstance(value, torch.Tensor):
            slots.append(_slot(cases, place, None, value))
        elif argument.is_tensor and value is not None:
            slots += [_slot(cases, place, index, each) for index, each in enumerate(value) if each is not None]
    seen: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for index, slot in enumerate(slots):
        for axis in range(slot.ndim):
            sizes = tuple(_tensor_at(case, slot).shape[axis] for case in cases)
            seen.setdefault(sizes, []).append((index, axis))
    groups = tuple(Group(tuple(places), sizes) for sizes, places in seen.items())
    frozen = [n for n, group in enumerate(groups) if any(slots[slot].structured for slot, _ in group.places)]
    return Pattern(tuple(cases), tuple(slots), groups, device, frozenset(frozen))


def _slot(cases: Sequence[Case], place: int, element: int | None, first: torch.Tensor) -> Slot:
    tensors = [value if element is None else value[element] for value in (case.values[place] for case in cases)]
    ranges = _ranges(tensors)
    whole = is_integer(first.dtype)
    ordered = whole and first.ndim > 0 and all(_in_order(tensor) for tensor in tensors)
    structured = ordered and any(tensor.numel() > 2 for tensor in tensors)
    return Slot(place, element, first.ndim, first.dtype, ranges, structured, _among(tensors) if whole else ())


def _among(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Negative numbers apart from the others have a meaning of their own, as an ignored class has. Numbers that are
    merely sparse have none."""
    seen = sorted({int(number) for tensor in tensors for number in tensor.unique().tolist()})
    negative = [number for number in seen if number < 0]
    return tuple(seen) if negative and seen[-1] >= 0 and len(seen) <= MOST_AMONG else ()


def _ranges(tensors: Sequence[torch.Tensor]) -> tuple[Range, ...]:
    """Of each sample, those with the most elements first."""
    filled = sorted((tensor for tensor in tensors if tensor.numel()), key=lambda tensor: -tensor.numel())
    if filled and filled[0].numel() == 1:
        filled = [torch.stack([tensor.reshape(()) for tensor in filled])]
    return tuple(dict.fromkeys(_range(tensor) for tensor in filled)) or ((-1.0, 1.0),)


def is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _in_order(tensor: torch.Tensor) -> bool:
    return tensor.shape[-1] < 2 or bool((tensor.diff(dim=-1) >= 0).all())


def _range(tensor: torch.Tensor) -> Range:
    """The smallest and largest number, brought inwards to three digits."""
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


def _tensor_at(case: Case, slot: Slot) -> torch.Tensor:
    value = case.values[slot.argument]
    tensor: torch.Tensor = value if slot.element is None else value[slot.element]
    return tensor


def _without_sample(made: Case, like: Case) -> Case:
    """Without the lines that make the sample, where nothing of it is left but what Python writes down itself."""
    lines = made.lines[len(like.lines) :]
    bound = {line.partition(" = ")[0] for line in lines}
    plain = []
    for argument, value in zip(made.arguments, made.values, strict=True):
        if argument.name in bound:
            continue
        if not _is_written_down(value):
            return made
        plain.append(f"{argument.name} = {value!r}")
    return Case(made.name, made.arguments, made.values, (*lines, *plain))


def _is_written_down(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_written_down(each) for each in value)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return value is None or isinstance(value, (bool, int, float, str, torch.dtype))
