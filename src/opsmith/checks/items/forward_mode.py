"""Forward-mode derivatives match the reference, by jvp, dual numbers and double backward; none is silently zero."""

from __future__ import annotations

import torch

from ...errors import UnsavedInputError
from ...operator.op import Op
from ..accuracy.truth import Truth
from ..calls.derivatives import Form, tangents, tangents_of_reference
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._choice import arguments_of
from ._small import differentiable_cases
from ._truth import Worst, judged, raising


def check(subject: Subject) -> str:
    worst = Worst()
    for case in differentiable_cases(subject, (torch.float64, torch.float32)):
        try:
            truth = tangents_of_reference(subject, case)
        except RuntimeError as error:
            raise Skipped(f"its reference has no forward mode: {str(error).splitlines()[0]}") from None
        for by in ("jvp", "dual", "reverse"):
            form = tangents(subject, case, by)
            if by == "reverse" and not _reference_knows(form):
                continue  # its gradients have none, or none at zero, where they are taken
            line = f"opsmith.checks.assert_tangents_match(op, {arguments_of(case)}, by={by!r})"
            given = _given(subject, case, form, line)
            if given is None:
                continue
            if by != "reverse":
                _refuse_zeros(case, form, truth, given, line)
            for each in judged(case, form.renamed(truth.beside(given)), line):
                worst.add(case.dtype, each)
    if not worst:
        raise subject.without_gradient()
    return f"largest error in ULP: {worst}"


def _given(subject: Subject, case: Case, form: Form, line: str) -> list[tuple[str, torch.Tensor | None]] | None:
    """None where reverse mode's way is refused: it goes by second gradients, for which the op saves too little."""
    with raising(case, [line]):
        try:
            return form.of(subject.call)
        except UnsavedInputError:
            return None
        except Exception as error:
            if isinstance(subject.op, Op) and _reference_knows(form):
                raise
            # torch.library has no way to register a tangent: others' operators cannot do better than raise.
            raise Skipped(f"forward mode is refused, not wrong: {str(error).splitlines()[0]}") from None


def _refuse_zeros(
    case: Case, form: Form, truth: Truth, given: list[tuple[str, torch.Tensor | None]], line: str
) -> None:
    for (_, mine), (_, theirs), name in zip(given, truth.own, form.names, strict=True):
        if mine is not None and theirs is not None and bool(theirs.any()) and not bool(mine.any()):
            text = "zero everywhere, and the reference's is not: what records its gradient knows no tangents"
            raise Failed(f"{case.name}: {name} is {text}", case, [line])


def _reference_knows(form: Form) -> bool:
    try:
        found = form.of(form.subject.reference)
    except RuntimeError:  # NotImplementedError among them
        return False
    return all(tensor is None or bool(tensor.isfinite().all()) for _, tensor in found)
