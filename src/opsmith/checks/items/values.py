"""Results match the reference in float64, within rounding error."""

from __future__ import annotations

import torch

from ..accuracy.evaluate import evaluate
from ..cases.case import Case
from ..outcome import Failed, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject
from ._choice import deterministic
from ._truth import Worst, compared, given, judged

ORDER = 1
LARGE = 1 << 24
"""Elements of the largest sample that is looked at."""
ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    worst = Worst()
    looked = False
    for dtype in subject.dtypes:
        for case in subject.some_cases(dtype):
            deterministic(subject, case)
            looked = True
            for each in judged(case, compared(subject, case, gradients=False, figures=True)):
                worst.add(dtype, each)
    large = _large(subject)
    if large is not None:
        deterministic(subject, large)
        _look_at_large(subject, large)
    if not looked and large is None:
        if not subject.dtypes:
            raise Failed("there is no sample to look at: register_samples yields none")
        raise Uncovered(f"{TOO_LARGE} to {SMALL} elements")
    summary = f"largest error in ULP: {worst}" if worst else "nothing that is rounded"
    summary += f"; {large.name}, of {large.numel} elements, by its largest number" if large else ""
    larger = [case for case in subject.cases(torch.float32) if case.numel > LARGE]
    return summary + (f"; {len(larger)} samples of more than {LARGE} elements only cut down" if larger else "")


def _large(subject: Subject) -> Case | None:
    """The largest sample of float32 that others leave out for its size."""
    found = [case for case in subject.cases(torch.float32, LARGE) if case.numel > SMALL]
    return max(found, key=lambda case: case.numel, default=None)


def _look_at_large(subject: Subject, case: Case) -> None:
    """First beside the rounding of the largest number there is, in sums of as many terms: the truth of every element
    takes seconds, and is asked for where that leaves a doubt, as beside ties and jumps."""
    mine = given(subject, case, False)
    own = evaluate(subject.arguments, subject.inline, case.values, gradients=False)
    exact = evaluate(subject.arguments, subject.inline, case.values, dtype=torch.float64, gradients=False)
    for (_, found), (_, beside), (_, right) in zip(mine, own, exact, strict=True):
        if found is None or beside is None or right is None or _is_doubtful(found, beside, right, case.numel):
            judged(case, compared(subject, case, gradients=False))
            return


def _is_doubtful(found: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, count: int) -> bool:
    if found.shape != exact.shape or found.dtype != own.dtype:
        return True
    if not found.is_floating_point() or not found.numel():
        return bool((found != own).any())
    off = (found.double() - exact).abs()
    finite = exact.isfinite() & own.isfinite()
    largest = float(exact.abs().where(finite, 0.0).max())
    terms = max(1, count // found.numel())
    allowed = 16 * torch.finfo(found.dtype).eps * largest * terms**0.5
    allowed += 4 * float((own.double() - exact).abs().where(finite, 0.0).max())
    same = (found == own) | (found.isnan() & own.isnan())
    return not bool(torch.where(finite, off <= allowed, same).all())
