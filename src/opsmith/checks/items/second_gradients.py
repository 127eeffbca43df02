"""Second gradients are those of the reference, for gradients of no special form too, and gradgradcheck agrees."""

from __future__ import annotations

import torch
from torch.autograd.gradcheck import GradcheckError

from ..cases import Case
from ..forms import second_gradients
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._choice import arguments_of
from ._small import differentiable_cases, probe
from ._truth import Worst, judged, raising

ON = ("cpu", "cuda", "emulated")
MOST = 24
"""Elements of the leaves that gradgradcheck goes through: it takes their square in calls."""


def check(subject: Subject) -> str:
    worst = Worst()
    for case in differentiable_cases(subject, (torch.float64, torch.float32)):
        form = second_gradients(subject, case)
        try:
            truth = form.truth()
        except RuntimeError as error:
            raise Skipped(f"its reference has no second gradient: {str(error).splitlines()[0]}") from None
        line = f"opsmith.checks.assert_second_gradients_match(op, {arguments_of(case)})"
        with raising(case, [line]):
            given = form.of(subject.call)
        for each in judged(case, form.renamed(truth.beside(given)), line):
            worst.add(case.dtype, each)
    if not worst:
        raise Skipped("no sample has a result with a gradient")
    small = probe(subject, MOST)
    if small is not None:
        _gradgradcheck(subject, small.requiring())
    return f"largest error in ULP: {worst}"


def _gradgradcheck(subject: Subject, case: Case) -> None:
    def called(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(result for result in subject.call(case.replaced(tensors)) if result.requires_grad)

    line = f"torch.autograd.gradgradcheck({case.function_of_leaves()}, {case.leaf_tuple()})"
    with raising(case, [line]):
        try:
            leaves = [leaf for _, leaf in case.leaves()]
            torch.autograd.gradgradcheck(called, leaves, gen_non_contig_grad_outputs=True)
        except GradcheckError as error:
            message = str(error).strip().splitlines()[0]
            raise Failed(f"{case.name}: gradgradcheck: {message}", case, [line]) from None
