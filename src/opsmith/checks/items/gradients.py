"""First gradients are those of the reference's autograd, within what rounding explains, and gradcheck agrees."""

from __future__ import annotations

import torch
from torch.autograd.gradcheck import GradcheckError

from ..outcome import Failed, Skipped
from ..subject import Subject, short
from ._truth import compared, judged

ORDER = 2
ON = ("cpu", "cuda", "emulated")
MOST = 512
"""Elements of the leaves that gradcheck goes through one by one."""


def check(subject: Subject) -> str:
    worst: dict[str, float] = {}
    for dtype in subject.dtypes:
        for case in subject.some_cases(dtype):
            if not subject.differentiates(case):
                continue
            for each in judged(subject, case, compared(subject, case)):
                if each.what.startswith("gradient"):
                    worst[short(dtype)] = max(worst.get(short(dtype), 0.0), each.ulps)
    if not worst:
        raise Skipped("no sample has a result with a gradient")
    _gradcheck(subject)
    return "largest error in ULP: " + ", ".join(f"{dtype} {ulps:.3g}" for dtype, ulps in worst.items())


def _gradcheck(subject: Subject) -> None:
    case = subject.differentiable_case().requiring()
    leaves = [leaf for _, leaf in case.leaves()]
    if case.dtype != torch.float64 or sum(leaf.numel() for leaf in leaves) > MOST:
        return

    def called(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(subject.call(case.replaced(tensors)))

    try:
        torch.autograd.gradcheck(called, leaves, nondet_tol=0.0)
    except GradcheckError as error:
        line = f"torch.autograd.gradcheck({case.function_of_leaves()}, {case.leaf_tuple()})"
        raise Failed(f"{case.name}: gradcheck: {str(error).strip().splitlines()[0]}", case, [line]) from None
