"""The transforms of torch.func, also composed, give the same for the op as for the reference."""

from __future__ import annotations

import torch

from ...operator.op import Op
from ..accuracy.truth import Truth
from ..calls.functional_transforms import TRANSFORMS, given, truth_of
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._choice import arguments_of, deterministic, has_gradients, resized, small_case
from ._truth import judged, raising

MATRICES = ("jacrev", "jacfwd", "hessian", "jacrev of jacfwd")
"""Transforms with a row for each element of the arguments."""
MOST_FOR_MATRICES = 1024
QUICK = ("vjp", "jacrev", "hessian", "functional_call")
"""Which contain the others."""


def check(subject: Subject) -> str:
    case = _case(subject)
    deterministic(subject, case)
    if not has_gradients(subject, case):
        raise subject.without_gradient()
    held, refused = [], []
    elements = sum(tensor.numel() for tensor in case.every_tensor())
    for transform in TRANSFORMS if subject.full else QUICK:
        if elements > MOST_FOR_MATRICES and transform in MATRICES:
            continue
        truth = _truth(subject, case, transform)
        if truth is None:  # the reference has none
            continue
        line = f"opsmith.checks.assert_transform_matches(op, {transform!r}, {arguments_of(case)})"
        try:
            with raising(case, [line]):
                found = _given(subject, case, transform)
        except _Refused:
            refused.append(transform)
            continue
        judged(case, truth.beside(found), line)
        held.append(transform)
    if not held:
        raise Skipped(f"it refuses {', '.join(refused)}: it has no forward-mode derivative")
    summary = ", ".join(held) + (f"; it refuses {', '.join(refused)}" if refused else "")
    too_large = f"; not {', '.join(MATRICES)}: its smallest call has {elements} elements"
    return summary + (too_large if elements > MOST_FOR_MATRICES else "")


def _case(subject: Subject) -> Case:
    for dtype in (torch.float64, torch.float32):
        for case in resized(subject, 1, dtype):
            return case
    return small_case(subject, (torch.float64, torch.float32))


class _Refused(Exception):
    """An operator of others may have no forward-mode derivative, and say so."""


def _given(subject: Subject, case: Case, transform: str) -> list[tuple[str, torch.Tensor | None]]:
    try:
        return given(subject, case.values, transform)
    except NotImplementedError as error:
        if isinstance(subject.op, Op) or "forward" not in str(error):
            raise
        raise _Refused from error


def _truth(subject: Subject, case: Case, transform: str) -> Truth | None:
    try:
        return truth_of(subject, case.values, transform)
    except RuntimeError:  # NotImplementedError among them: torch has no such rule for something in the reference
        return None
