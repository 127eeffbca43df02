"""Forward-mode derivatives match the reference, by jvp, dual numbers and double backward; none is silently zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...errors import UnsavedInputError
from ...operator.op import Op
from ..accuracy.evaluate import Named
from ..accuracy.truth import Truth
from ..calls.derivatives import Form, tangents, tangents_of_reference
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._cases import arguments_of, differentiable_cases
from ._compare import LargestErrors, failing_on_error, require


def check(subject: Subject) -> str:
    largest = LargestErrors()
    for case in differentiable_cases(subject, (torch.float64, torch.float32)):
        try:
            truth = tangents_of_reference(subject, case)
        except RuntimeError as error:
            raise Skipped(f"its reference has no forward mode: {str(error).splitlines()[0]}") from None
        for by in ("jvp", "dual", "reverse"):
            form = tangents(subject, case, by)
            if by == "reverse" and not _reference_has_form(form):
                continue  # its gradients have none, or none at zero, where they are taken
            lines = [f"opsmith.checks.assert_tangents_match(op, {arguments_of(case)}, by={by!r})"]
            given = _given(subject, case, form, lines)
            if given is None:
                continue
            if by != "reverse":
                _require_nonzero(case, form, truth, given, lines)
            for each in require(case, form.renamed(truth.beside(given)), lines):
                largest.add(case.dtype, each)
    if not largest:
        raise subject.without_gradient()
    return str(largest)


def _given(subject: Subject, case: Case, form: Form, lines: Sequence[str]) -> list[Named] | None:
    """None if reverse mode is refused: it uses second gradients, for which the op saves too little."""
    with failing_on_error(case, lines):
        try:
            return form.of(subject.call)
        except UnsavedInputError:
            return None
        except Exception as error:
            if isinstance(subject.op, Op) and _reference_has_form(form):
                raise
            # torch.library has no way to register a tangent: an adopted operator can only raise.
            raise Skipped(f"forward mode is refused, not wrong: {str(error).splitlines()[0]}") from None


def _require_nonzero(case: Case, form: Form, truth: Truth, given: Sequence[Named], lines: Sequence[str]) -> None:
    for (_, mine), (_, theirs), name in zip(given, truth.own, form.names, strict=True):
        if mine is not None and theirs is not None and bool(theirs.any()) and not bool(mine.any()):
            text = "zero everywhere, and the reference's is not: what records its gradient knows no tangents"
            raise Failed(f"{case.name}: {name} is {text}", case, lines)


def _reference_has_form(form: Form) -> bool:
    try:
        found = form.of(form.subject.reference)
    except RuntimeError:  # NotImplementedError among them
        return False
    return all(tensor is None or bool(tensor.isfinite().all()) for _, tensor in found)
