"""Cuts a sample of any size down to a call that is small enough for every item.

Dimensions of equal size stay equal. An int argument that equals such a size changes with it, as do ints that add up to
one, and the numbers in an integer tensor are scaled to the size they index. Several cuts are tried; the reference
decides which gives a valid call.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .case import Case

KEPT_AT_MOST = 2
"""The most sizes that are left as they are while the others are cut."""
TRIES = 200

Sizes = Mapping[int, int]
"""{size in the sample: size in the smaller call}."""
Way = Callable[[int, int, int], int]
"""(size, largest new size, position of the size among all, in descending order) -> new size."""


def shrunk(case: Case, most: int, takes: Callable[[Case], bool]) -> Case | None:
    """The call with at most `most` elements in each tensor; None where none that was tried is valid."""
    tried: set[tuple[str, ...]] = set()
    for sizes in itertools.islice(_smaller_sizes(case, most), TRIES):
        for ints_follow, indexes_follow in itertools.product((True, False), repeat=2):
            smaller = _cut(case, sizes, ints_follow, indexes_follow)
            if smaller.lines not in tried:
                tried.add(smaller.lines)
                if takes(smaller):
                    return smaller
    return None


def _smaller_sizes(case: Case, most: int) -> Iterator[Sizes]:
    """Cuts, those that change most sizes first. Odd sizes show more faults than powers of two; halves and multiples
    preserve divisibility; and a size that the op requires is left as it is."""
    shapes = [tuple(tensor.shape) for tensor in case.every_tensor()]
    found = sorted({size for shape in shapes for size in shape if size > 1}, reverse=True)
    others = [value for argument, value in zip(case.arguments, case.values, strict=True) if not argument.is_tensor]
    factors = [value for value in others if type(value) is int and value > 1]  # which may be numbers of heads or groups
    multiples: list[Way] = [functools.partial(_multiple, factor) for factor in factors]
    seen: set[tuple[tuple[int, int], ...]] = set()
    for kept_count in range(min(KEPT_AT_MOST, len(found)) + 1):
        for kept in itertools.combinations(reversed(found), kept_count):
            for way in [_odd, _power_of_two, _halved, *multiples]:
                sizes = _fitted(way, [size for size in found if size not in kept], shapes, most)
                key = tuple(sizes.items()) if sizes is not None else ()
                if sizes is not None and key not in seen:
                    seen.add(key)
                    yield sizes


def _fitted(way: Way, sizes: list[int], shapes: list[tuple[int, ...]], most: int) -> Sizes | None:
    """The largest new sizes with which every tensor is small enough."""
    for largest in (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1):
        chosen = {size: new for place, size in enumerate(sizes) if (new := way(size, largest, place)) < size}
        if all(math.prod(chosen.get(size, size) for size in shape) <= most for shape in shapes):
            return chosen
    return None


def _odd(size: int, largest: int, place: int) -> int:
    """Different new sizes for different sizes, where possible: no two dimensions become equal by accident."""
    return min(size, max((largest - 1) // 2 * 2 + 1 - 2 * place, 3))


def _power_of_two(size: int, largest: int, place: int) -> int:
    return min(size, 1 << max(largest.bit_length() - 1 - place % 2, 1))


def _multiple(factor: int, size: int, largest: int, place: int) -> int:
    """A multiple of a number of heads or groups stays one; any other size becomes a power of two."""
    if size % factor == 0:
        return min(size, factor * max(1, largest // factor))
    return min(size, 1 << (largest.bit_length() - 1))


def _halved(size: int, largest: int, place: int) -> int:
    """Each halved equally often, so that 300 = 100 + 200 becomes 75 = 25 + 50."""
    times = max(0, math.ceil(math.log2(128 / largest)))
    return max(size >> times, 2) if size % (1 << times) == 0 or size >> times >= 8 else size


def _cut(case: Case, sizes: Sizes, ints_follow: bool, indexes_follow: bool) -> Case:
    smaller = case.each_named(lambda name, tensor: _cut_tensor(case, name, tensor, sizes, indexes_follow))
    for argument, value in zip(case.arguments, case.values, strict=True):
        if ints_follow and not argument.is_tensor and (followed := _followed(value, sizes)) != value:
            smaller = smaller.changed(argument.name, followed, repr(followed))
    cuts = ", ".join(f"{old} to {new}" for old, new in sizes.items()) or "nothing"
    return smaller.named(f"{case.name}, cut from {cuts}")


def _followed(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return sizes.get(value, value)
    if isinstance(value, (list, tuple)) and all(isinstance(each, int) for each in value):
        if len(value) > 1 and sum(value) in sizes:  # the parts into which a dimension is split
            old, new = sum(value), sizes[sum(value)]
            ends = [0, *(end * new // old for end in itertools.accumulate(value))]
            return type(value)(end - begin for begin, end in itertools.pairwise(ends))
        return type(value)(sizes.get(each, each) for each in value)
    return value


def _cut_tensor(
    case: Case, name: str, tensor: torch.Tensor, sizes: Sizes, indexes_follow: bool
) -> tuple[torch.Tensor, str] | None:
    """The first elements along each dimension, and the expression for that; None for no change."""
    made = None
    bounds = [sizes.get(size, size) for size in tensor.shape]
    old = _indexed_size(case, tensor) if indexes_follow else None
    if bounds != list(tensor.shape):
        pairs = zip(bounds, tensor.shape, strict=True)
        index = ", ".join(f":{bound}" if bound != size else ":" for bound, size in pairs)
        made = tensor[tuple(slice(bound) for bound in bounds)].clone(), f"{name}[{index}].clone()"
    if old is None or old not in sizes:
        return made
    cut, code = made or (tensor, name)
    # Rounded down, 0 stays 0 and an offset that equals the size becomes the new size: order and ends are preserved.
    return (cut.long() * sizes[old] // old).to(cut.dtype), f"({code}.long() * {sizes[old]} // {old}).to({cut.dtype})"


def _indexed_size(case: Case, tensor: torch.Tensor) -> int | None:
    """The smallest size in the call that bounds all numbers of an integer tensor, which may be positions or offsets."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool or not tensor.numel():
        return None
    low, high = int(tensor.min()), int(tensor.max())
    sizes = sorted({size for each in case.every_tensor() for size in each.shape if size > 1})
    return next((size for size in sizes if high <= size), None) if low >= 0 else None
