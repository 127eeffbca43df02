"""Small calls in float64, for checks that go through elements one by one, or through many calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..cases import Case
from ..patterns import patterns_of, taken
from ..subject import SMALL, Subject
from ._choice import deterministic


def probe(subject: Subject, most: int, least: int = 2) -> Case | None:
    """A call with finite numbers whose gradients can be asked for, of at most `most` elements in all: the largest of
    the samples, else the first one cut down. None where no such call is taken."""
    found = [case for case in subject.cases(torch.float64, most) if _is_fit(subject, case, most, least)]
    if found:
        return max(found, key=_count)
    for pattern in patterns_of(subject, torch.float64):
        sizes = [
            size if number in pattern.frozen or group.is_constant else min(size, 3)
            for number, (group, size) in enumerate(zip(pattern.groups, pattern.sizes_of(pattern.base), strict=True))
        ]
        case = pattern.case(sizes, seed=subject.seed, name="a call cut down to 3 each way")
        if _count(case) <= most and taken(subject, case) and _is_fit(subject, case, most, least):
            return case
    return None


def differentiable_cases(subject: Subject, dtypes: Sequence[torch.dtype], most: int = 4096) -> list[Case]:
    """In each dtype a sample or two whose gradients can be asked for: calls of different ranks, none empty."""
    found: dict[tuple[torch.dtype, tuple[int, ...]], Case] = {}
    for dtype in dtypes:
        for case in subject.cases(dtype, most):
            ranks = dtype, tuple(tensor.ndim for tensor in case.every_tensor())
            if ranks in found or not _is_fit(subject, case, SMALL, 2):
                continue
            found[ranks] = case
            if not subject.full and sum(key[0] is dtype for key in found) == 2:
                break
    return list(found.values())


def _is_fit(subject: Subject, case: Case, most: int, least: int) -> bool:
    tensors = case.every_tensor()
    if not (least <= _count(case) <= most) or not all(t.numel() and bool(t.isfinite().all()) for t in tensors):
        return False
    deterministic(subject, case)
    return subject.differentiates(case)


def _count(case: Case) -> int:
    return sum(tensor.numel() for tensor in case.every_tensor())
