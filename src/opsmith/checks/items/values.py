"""Results match the reference in float64, within rounding error."""

from __future__ import annotations

import torch

from ..accuracy.truth import Comparison
from ..cases.case import Case
from ..outcome import Failed, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject
from ._cases import each_case, skip_random
from ._compare import check_match, largest_errors, match_lines, op_outputs

ORDER = 1
LARGE = 1 << 24
"""Elements of the largest sample that is checked whole."""
ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    found: list[tuple[torch.dtype, Comparison]] = []
    case = None
    for case in each_case(subject):
        found += [(case.dtype, each) for each in check_match(subject, case, False, figures=True)]
    # The largest sample of float32 that other items leave out for its size.
    samples = subject.cases(torch.float32)
    large = max((case for case in samples if SMALL < case.numel <= LARGE), key=lambda case: case.numel, default=None)
    if large is not None:
        skip_random(subject, large)
        _check_large(subject, large)
    if case is None and large is None:
        if not subject.dtypes:
            raise Failed("there is no sample to check: register_samples yields none")
        raise Uncovered(f"{TOO_LARGE} to {SMALL} elements")
    summary = largest_errors(found) or "nothing that is rounded"
    summary += f"; {large.name}, of {large.numel} elements, by its largest number" if large else ""
    larger = sum(case.numel > LARGE for case in samples)
    return summary + (f"; {larger} samples of more than {LARGE} elements only cut down" if larger else "")


def _check_large(subject: Subject, case: Case) -> None:
    """Compares with the rounding of the largest number, in sums of as many terms. The truth of every element takes
    seconds, and is computed only if that leaves a doubt, as at ties and jumps."""
    mine = op_outputs(subject, case, False, lines=match_lines(case, False))
    own = subject.evaluate(case, False, subject.inline)
    exact = subject.evaluate(case, False, subject.inline, dtype=torch.float64)
    for (_, found), (_, reference), (_, right) in zip(mine, own, exact, strict=True):
        if found is None or reference is None or right is None or _is_doubtful(found, reference, right, case.numel):
            check_match(subject, case, False)
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
