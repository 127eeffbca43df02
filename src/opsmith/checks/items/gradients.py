"""First gradients are those of the reference's autograd, within what rounding explains, and gradcheck agrees."""

from __future__ import annotations

import torch

from ..outcome import Skipped
from ..subject import SMALL, Subject
from ._choice import deterministic
from ._small import checked, probe
from ._truth import Worst, compared, judged

ORDER = 2
ON = ("cpu", "cuda", "emulated")
MOST = 64
"""Elements of the leaves that gradcheck goes through one by one."""


def check(subject: Subject) -> str:
    worst = Worst()
    for dtype in subject.dtypes:
        for case in subject.some_cases(dtype):
            deterministic(subject, case)
            if not subject.differentiates(case):
                continue
            for each in judged(case, compared(subject, case, figures=True)):
                if each.what.startswith("gradient"):
                    worst.add(dtype, each)
    of_complex = _gradcheck_of_complex(subject)
    if not worst and not of_complex:
        raise Skipped("no sample has a result with a gradient")
    of_real = [f"largest error in ULP: {worst}", _gradcheck(subject)] if worst else []
    return "; ".join(filter(None, [*of_real, of_complex]))


def _gradcheck_of_complex(subject: Subject) -> str:
    if not any(subject.differentiates_complex(case) for case in subject.cases(torch.float64, SMALL)):
        return ""
    case = probe(subject, MOST, fit=Subject.differentiates_complex)
    if case is None:
        return "no sample of complex numbers is small enough for gradcheck"
    leaves = case.requiring(complex_too=True)
    line = f"torch.autograd.gradcheck({leaves.function_of_leaves()}, {leaves.leaf_tuple()})"
    return checked(subject, leaves, torch.autograd.gradcheck, line) or "gradcheck of complex numbers"


def _gradcheck(subject: Subject) -> str:
    case = probe(subject, MOST)
    if case is None:
        return "no sample in float64 is small enough for gradcheck"
    leaves = case.requiring()
    line = f"torch.autograd.gradcheck({leaves.function_of_leaves()}, {leaves.leaf_tuple()})"
    return checked(subject, leaves, torch.autograd.gradcheck, line)
