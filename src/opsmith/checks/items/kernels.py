"""Each kernel that `using` can select matches the reference, results and gradients."""

from __future__ import annotations

import torch

from ...operator.op import Op
from ..cases.case import Case
from ..outcome import Failed, Skipped, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject
from ._choice import deterministic
from ._truth import compared, judged, matching

ON = ("cpu", "cuda", "emulated")
REFERENCE = "reference"


def check(subject: Subject) -> str:
    op = subject.op
    if not isinstance(op, Op):
        raise Skipped("it was registered elsewhere, and has no kernels to pick from")
    names = _names(subject, op)
    looked = False
    for name in names:
        for dtype in subject.dtypes:
            for case in _cases(subject, dtype):
                deterministic(subject, case)
                _look(subject, op, name, case)
                looked = True
    if not looked:
        raise Uncovered(f"{TOO_LARGE} to {SMALL} elements")
    return ", ".join(names)


def _names(subject: Subject, op: Op) -> list[str]:
    """Those for the device, and the reference, which runs where no kernel does."""
    if subject.emulated:
        return list(op._families.emulated)
    return [*dict.fromkeys(subject.kernels), REFERENCE]


def _cases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    found = subject.some_cases(dtype)
    return found if subject.full or dtype is torch.float32 else found[:1]


def _look(subject: Subject, op: Op, name: str, case: Case) -> None:
    try:
        with op.using(name):
            judged(case, compared(subject, case))
    except Failed as failed:
        line = f"with op.using({name!r}):\n    {matching(case)}"
        raise Failed(f"kernel {name!r}: {failed.message}", case, [line]) from failed
