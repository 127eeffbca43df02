"""Every size is right: empty, one element, no dimensions, and around each power of two and vector width."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..cases.acceptance import taken, work
from ..cases.case import Case
from ..cases.patterns import Group, Pattern, patterns_of
from ..outcome import ReferenceRaises, Skipped
from ..subject import EMULATED, SMALL, Subject, short
from ._choice import deterministic
from ._truth import given, judged, truth_of

ON = ("cpu", "cuda", "emulated")
QUICK = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025,
         4097)  # fmt: skip
FULL = tuple(sorted({0, *(2**power + step for power in range(17) for step in (-1, 0, 1))}))
MANY = (2**19 - 1, 2**19, 2**19 + 5)
"""Besides, of a pointwise op on a GPU: kernels that fill it take other ways than those that do not."""
EMULATED_SIZES = (0, 1, 3, 4, 5, 8, 9, 31, 33, 129, 257)
SHORT, LONG = 256, 2048
"""Operators that the reference may call, as a loop over a dimension does: each comparison runs it ten times."""
OPERATORS = {"quick": 1500, "full": 30000}
"""That the references of all cases of a pattern may call together, an equal share for each dimension."""
OTHERS = 3
"""The size of a dimension while another is tried: odd, and no vector's width."""


def check(subject: Subject) -> str:
    tried: set[int] = set()
    calls = 0
    for dtype in _dtypes(subject):
        for number, pattern in enumerate(patterns_of(subject, dtype)[: None if subject.full else 3]):
            deterministic(subject, pattern.base)
            # Every size in the first two dtypes, for the kinds of calls that come first: the others have fewer.
            every = subject.full and dtype in _dtypes(subject)[:2] and number < 2
            for size, case in _cases(subject, pattern, every):
                calls += _look(subject, case)
                tried.add(size)
        for case in _without_dimensions(subject, dtype):
            calls += _look(subject, case)
    if not calls:
        raise Skipped("no dimension of its samples can be given another size")
    return f"{calls} calls, with sizes from {min(tried, default=1)} to {max(tried, default=1)}"


def _dtypes(subject: Subject) -> list[torch.dtype]:
    """Vectors of two bytes are twice as wide as those of four: one of each in any case."""
    wide = [dtype for dtype in subject.dtypes if dtype.itemsize >= 4]
    narrow = [dtype for dtype in subject.dtypes if dtype.itemsize < 4]
    first = [*wide[:1], *narrow[:1]]
    return [*first, *(dtype for dtype in subject.dtypes if dtype not in first)] if subject.full else first


def _cases(subject: Subject, pattern: Pattern, every: bool) -> Iterator[tuple[int, Case]]:
    sizes = EMULATED_SIZES if subject.emulated else FULL if every else QUICK
    limit = EMULATED if subject.emulated else 2 * SMALL
    if subject.device == "cuda" and subject.keeps_layout:
        sizes, limit = (*sizes, *MANY), 8 * MANY[-1]
    most = LONG if subject.full else SHORT
    base = pattern.sizes_of(pattern.base)
    reduced = [
        size if number in pattern.frozen or group.is_constant else min(size, OTHERS)
        for number, (group, size) in enumerate(zip(pattern.groups, base, strict=True))
    ]
    others = reduced if taken(subject, pattern.case(reduced, seed=subject.seed)) else base
    varied = [(number, group) for number, group in enumerate(pattern.groups) if number not in pattern.frozen]
    for number, group in varied:
        left = OPERATORS[subject.level] / len(varied)
        for size in sizes:
            chosen = [size if index == number else other for index, other in enumerate(others)]
            if pattern.numel(chosen) > limit:
                continue
            case = pattern.case(chosen, seed=subject.seed, name=_name(pattern, group, size))
            if not taken(subject, case):
                continue
            calls = work(subject, case)
            left -= calls
            if left < 0:
                break
            if calls <= most:
                yield size, case


def _name(pattern: Pattern, group: Group, size: int) -> str:
    slot, axis = group.places[0]
    argument = pattern.base.arguments[pattern.slots[slot].argument].name
    return f"{argument}.shape[{axis}] = {size}, {short(pattern.base.dtype)}"


def _without_dimensions(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """Tensors of no dimension, where the reference takes them: they are forgotten as often as those of no element."""
    found = patterns_of(subject, dtype)
    if not found:
        return []
    pattern = found[0]
    name = f"no dimension, {short(dtype)}"
    case = pattern.case((), shapes=[()] * len(pattern.slots), seed=subject.seed, name=name)
    return [case] if taken(subject, case) else []


def _look(subject: Subject, case: Case) -> int:
    gradients = subject.differentiates(case)
    try:
        truth = truth_of(subject, case, gradients)
    except ReferenceRaises:
        return 0
    if not (subject.keeps_layout or truth.is_finite):
        return 0  # what is inf or NaN in one order of adding up may be none in another
    judged(case, truth.beside(given(subject, case, gradients)))
    return 1
