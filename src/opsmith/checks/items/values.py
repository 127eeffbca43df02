"""Results are the reference's in float64, within what rounding explains."""

from __future__ import annotations

from ..subject import Subject, short
from ._truth import compared, judged

ORDER = 1
ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    worst: dict[str, float] = {}
    for dtype in subject.dtypes:
        for case in subject.some_cases(dtype):
            for each in judged(subject, case, compared(subject, case, gradients=False)):
                worst[short(dtype)] = max(worst.get(short(dtype), 0.0), each.ulps)
    told = ", ".join(f"{dtype} {ulps:.3g}" for dtype, ulps in worst.items())
    return f"largest error in ULP: {told}"
