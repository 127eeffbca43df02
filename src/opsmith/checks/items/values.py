"""Results are the reference's in float64, within what rounding explains."""

from __future__ import annotations

import torch

from ...accuracy.evaluate import evaluate
from ..cases import Case
from ..outcome import Failed
from ..subject import SMALL, Subject
from ._choice import deterministic
from ._truth import Worst, compared, given, judged, matching

ORDER = 1
LARGE = 1 << 22
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
        raise Failed(f"there is no sample to look at: give one of {SMALL} elements or fewer (register_samples)")
    told = f"largest error in ULP: {worst}" if worst else "nothing that is rounded"
    return told + (f"; {large.name}, of {large.numel} elements, by its largest number" if large else "")


def _large(subject: Subject) -> Case | None:
    """The largest sample of float32 that others leave out for its size."""
    found = [case for case in subject.cases(torch.float32, LARGE) if case.numel > SMALL]
    return max(found, key=lambda case: case.numel, default=None)


def _look_at_large(subject: Subject, case: Case) -> None:
    """Held to the rounding of the largest number there is, in sums of as many terms: what goes wrong with size alone is
    mostly far from it, and the truth of every element would take seconds."""
    mine = given(subject, case, False)
    own = evaluate(subject.arguments, subject.inline, case.values, gradients=False)
    exact = evaluate(subject.arguments, subject.inline, case.values, dtype=torch.float64, gradients=False)
    for (what, found), (_, beside), (_, right) in zip(mine, own, exact, strict=True):
        assert found is not None and beside is not None and right is not None
        message = f"{case.name}: {what}: "
        if found.shape != right.shape:
            raise Failed(
                f"{message}shape {tuple(found.shape)} beside {tuple(right.shape)}", case, [matching(case, False)]
            )
        if found.is_floating_point():
            terms = max(1, case.numel // max(1, found.numel()))
            finite = right.isfinite() & beside.isfinite()
            largest = float(right[finite].abs().max()) if bool(finite.any()) else 0.0
            allowed = 16 * torch.finfo(found.dtype).eps * largest * terms**0.5
            allowed += 4 * float((beside[finite].double() - right[finite]).abs().max()) if bool(finite.any()) else 0.0
            wrong = finite & ~((found.double() - right).abs() <= allowed)
        else:
            wrong = (found != beside) & (found != right)
        if bool(wrong.any()):
            first = tuple(wrong.nonzero()[0].tolist())
            numbers = f"{found[first].item():.9g} where {right[first].item():.9g} is right"
            message += f"{numbers}; {int(wrong.sum())} of {found.numel()} elements"
            raise Failed(message, case, [matching(case, False)])
