"""First gradients are those of the reference's autograd, within what rounding explains, and gradcheck agrees."""

from __future__ import annotations

import torch
from torch.autograd.gradcheck import GradcheckError

from ..outcome import Failed, Skipped
from ..subject import Subject
from ._choice import deterministic
from ._small import probe
from ._truth import Worst, compared, judged, raising

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
    if not worst:
        raise Skipped("no sample has a result with a gradient")
    return f"largest error in ULP: {worst}{_gradcheck(subject)}"


def _gradcheck(subject: Subject) -> str:
    case = probe(subject, MOST)
    if case is None:
        return "; no sample in float64 is small enough for gradcheck"
    case = case.requiring()

    def called(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(subject.call(case.replaced(tensors)))

    line = f"torch.autograd.gradcheck({case.function_of_leaves()}, {case.leaf_tuple()})"
    with raising(case, [line]):
        try:
            torch.autograd.gradcheck(called, [leaf for _, leaf in case.leaves()], nondet_tol=0.0)
        except GradcheckError as error:
            raise Failed(f"{case.name}: gradcheck: {str(error).strip().splitlines()[0]}", case, [line]) from None
    return ""
