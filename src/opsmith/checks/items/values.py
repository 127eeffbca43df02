"""Results are the reference's in float64, within what rounding explains."""

from __future__ import annotations

from ..subject import Subject
from ._choice import deterministic
from ._truth import Worst, compared, judged

ORDER = 1
ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    worst = Worst()
    for dtype in subject.dtypes:
        for case in subject.some_cases(dtype):
            deterministic(subject, case)
            for each in judged(case, compared(subject, case, gradients=False, figures=True)):
                worst.add(dtype, each)
    return f"largest error in ULP: {worst}"
