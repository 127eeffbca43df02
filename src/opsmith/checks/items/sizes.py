"""Every size is right: empty, one element, no dimensions, and around each power of two and vector width."""

from __future__ import annotations

from collections.abc import Iterator

from ..cases.acceptance import taken, work
from ..cases.case import Case
from ..cases.patterns import Pattern, patterns_of
from ..outcome import Skipped
from ..subject import EMULATED, SMALL, Subject, short
from ._cases import capped_sizes, skip_random
from ._compare import check_comparable

ON = ("cpu", "cuda", "emulated")
QUICK = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025,
         4097)  # fmt: skip
FULL = tuple(sorted({0, *(2**power + step for power in range(17) for step in (-1, 0, 1))}))
MANY = (2**19 - 1, 2**19, 2**19 + 5)
"""Also for a pointwise op on a GPU: kernels that fill it run other code than those that do not."""
EMULATED_SIZES = (0, 1, 3, 4, 5, 8, 9, 31, 33, 129, 257)
SHORT, LONG = 256, 2048
"""Operators that the reference may call, as a loop over a dimension does: each comparison runs it ten times."""
OPERATORS = {"quick": 1500, "full": 30000}
"""That the references of all cases of a pattern may call together, an equal share for each dimension."""
OTHERS = 3
"""The size of the other dimensions: odd, and no vector's width."""


def check(subject: Subject) -> str:
    tried: set[int] = set()
    calls = 0
    # At least a wide and a narrow one, since vectors of two bytes are twice as wide as those of four.
    dtypes = subject.wide_and_narrow
    dtypes += [dtype for dtype in subject.dtypes if subject.full and dtype not in dtypes]
    for dtype in dtypes:
        found = patterns_of(subject, dtype)
        for number, pattern in enumerate(found[: None if subject.full else 3]):
            skip_random(subject, pattern.base)
            # Every size in the first two dtypes and kinds of calls; the others have fewer.
            every = subject.full and dtype in dtypes[:2] and number < 2
            for size, case in _cases(subject, pattern, every):
                calls += check_comparable(subject, case)
                tried.add(size)
        for pattern in found[:1] if subject.elementwise or not subject.keeps_layout else []:  # a row has a dimension
            name, shapes = f"no dimension, {short(dtype)}", [()] * len(pattern.slots)
            case = pattern.case((), shapes=shapes, seed=subject.seed, name=name)
            calls += taken(subject, case) and check_comparable(subject, case)
    if not calls:
        raise Skipped("no dimension of its samples can be given another size")
    return f"{calls} calls, with sizes from {min(tried, default=1)} to {max(tried, default=1)}"


def _cases(subject: Subject, pattern: Pattern, every: bool) -> Iterator[tuple[int, Case]]:
    sizes = EMULATED_SIZES if subject.emulated else FULL if every else QUICK
    limit = EMULATED if subject.emulated else 2 * SMALL
    if subject.device == "cuda" and subject.keeps_layout:
        sizes, limit = (*sizes, *MANY), 8 * MANY[-1]
    most = LONG if subject.full else SHORT
    reduced = capped_sizes(pattern, OTHERS)
    others = reduced if taken(subject, pattern.case(reduced, seed=subject.seed)) else pattern.sizes_of(pattern.base)
    varied = [number for number in range(len(pattern.groups)) if number not in pattern.frozen]
    kind = short(pattern.base.dtype)
    for number in varied:
        left = OPERATORS[subject.level] / len(varied)
        for size in sizes:
            chosen = [size if index == number else other for index, other in enumerate(others)]
            if pattern.numel(chosen) > limit:
                continue
            case = pattern.case(chosen, seed=subject.seed, name=f"{pattern.described(number, size)}, {kind}")
            if not taken(subject, case):
                continue
            calls = work(subject, case)
            left -= calls
            if left < 0:
                break
            if calls <= most:
                yield size, case
