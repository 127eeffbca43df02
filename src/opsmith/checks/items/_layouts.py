"""The calls that the items about memory layouts use."""

from __future__ import annotations

import torch

from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import Pattern, patterns_of
from ..subject import Subject
from ._choice import deterministic

FOUR = (2, 3, 4, 5)
"""The shape of images that a pointwise op is given besides its samples."""
MOST = 4096
NO_LAYOUTS = "no sample has a tensor with dimensions, more than one element and finite numbers"


def layout_cases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """For each combination of ranks among the samples its first case with elements, and at most MOST of them; where
    level is quick the two with the most dimensions. A pointwise op takes any number of dimensions: there, four."""
    found: list[Case] = []
    for pattern in patterns_of(subject, dtype, MOST):
        filled = [case for case in pattern.cases if case.numel > 1 and all(t.numel() for t in _with_dims(case))]
        filled = [
            case for case in filled if _with_dims(case) and all(bool(t.isfinite().all()) for t in _with_dims(case))
        ]
        found += filled[:1] or _grown(subject, pattern)
        if subject.keeps_layout and not any(case.name == "four dimensions" for case in found):
            shapes = [FOUR if slot.ndim else () for slot in pattern.slots]
            made = pattern.case((), shapes=shapes, seed=subject.seed, name="four dimensions")
            found += [made] if taken(subject, made) else []
    found.sort(key=lambda case: -max(tensor.ndim for tensor in case.every_tensor()))
    for case in found[:1]:
        deterministic(subject, case)
    return found if subject.full else found[:2]


def _grown(subject: Subject, pattern: Pattern) -> list[Case]:
    """The call with dimensions of more than one element, where the reference accepts it: one has no layout."""
    sizes = [5 if size == 1 else size for size in pattern.sizes_of(pattern.base)]
    case = pattern.case(sizes, seed=subject.seed, name="a call of 5 each way")
    return [case] if _with_dims(case) and case.numel <= MOST and taken(subject, case) else []


def _with_dims(case: Case) -> list[torch.Tensor]:
    return [tensor for tensor in case.every_tensor() if tensor.ndim]
