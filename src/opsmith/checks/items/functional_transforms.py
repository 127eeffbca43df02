"""The transforms of torch.func, also composed, give the same for the op as for the reference."""

from __future__ import annotations

import torch

from ...operator.op import Op
from ..accuracy.evaluate import Named
from ..accuracy.truth import Truth
from ..calls.functional_transforms import TRANSFORMS, given, truth_of
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._cases import arguments_of, elements_of, generated_case, has_gradients, skip_random
from ._compare import failing_on_error, require

MATRICES = ("jacrev", "jacfwd", "hessian", "jacrev of jacfwd")
"""Transforms with a row for each element of the arguments."""
MOST_FOR_MATRICES = 1024
QUICK = ("vjp", "jacrev", "hessian", "functional_call")
"""These contain the others."""


def check(subject: Subject) -> str:
    case = generated_case(subject, (torch.float64, torch.float32))
    skip_random(subject, case)
    if not has_gradients(subject, case):
        raise subject.without_gradient()
    held, refused = [], []
    elements = elements_of(case)
    for transform in TRANSFORMS if subject.full else QUICK:
        if elements > MOST_FOR_MATRICES and transform in MATRICES:
            continue
        truth = _truth(subject, case, transform)
        if truth is None:  # the reference has none
            continue
        lines = [f"opsmith.checks.assert_transform_matches(op, {transform!r}, {arguments_of(case)})"]
        try:
            with failing_on_error(case, lines):
                found = _given(subject, case, transform)
        except _Refused:
            refused.append(transform)
            continue
        require(case, truth.beside(found), lines)
        held.append(transform)
    if not held:
        raise Skipped(f"it refuses {', '.join(refused)}: it has no forward-mode derivative")
    summary = ", ".join(held) + (f"; it refuses {', '.join(refused)}" if refused else "")
    too_large = f"; not {', '.join(MATRICES)}: its smallest call has {elements} elements"
    return summary + (too_large if elements > MOST_FOR_MATRICES else "")


class _Refused(Skipped):
    """An adopted operator may have no forward-mode derivative, and raise."""


def _given(subject: Subject, case: Case, transform: str) -> list[Named]:
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
