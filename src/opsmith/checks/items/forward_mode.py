"""Forward-mode derivatives match the reference, by jvp, dual numbers and double backward; none is silently zero."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsavedInputError
from ...operator.op import Op
from ..accuracy.evaluate import Named
from ..accuracy.truth import Comparison, Truth
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._compare import failing_on_error, require, require_derivatives
from ._derivatives import METHODS, Form, tangents, tangents_of_reference


def check(subject: Subject) -> str:
    return require_derivatives(subject, check_call)


def check_call(subject: Subject, case: Case) -> list[Comparison]:
    try:
        truth = tangents_of_reference(subject, case)
    except RuntimeError as error:
        raise Skipped(f"its reference has no forward mode: {str(error).splitlines()[0]}") from None
    found = []
    for by in METHODS:
        form = tangents(subject, case, by)
        if by == "reverse" and not _reference_has_form(form):
            continue  # its gradients have none, or none at zero, where they are taken
        case_by = case.named(f"{case.name}, by {by}")
        given = _given(subject, case_by, form)
        if given is None:
            continue
        if by != "reverse":
            _require_nonzero(case_by, form, truth, given)
        found += require(case_by, form.renamed(truth.beside(given)))
    return found


def _given(subject: Subject, case: Case, form: Form) -> list[Named] | None:
    """None if reverse mode is refused: it uses second gradients, for which the op saves too little."""
    with failing_on_error(case):
        try:
            return form.of(subject.call)
        except UnsavedInputError:
            return None
        except Exception as error:
            if isinstance(subject.op, Op) and _reference_has_form(form):
                raise
            # torch.library has no way to register a tangent: an adopted operator can only raise.
            raise Skipped(f"forward mode is refused, not wrong: {str(error).splitlines()[0]}") from None


def _require_nonzero(case: Case, form: Form, truth: Truth, given: Sequence[Named]) -> None:
    for (_, mine), (_, theirs), name in zip(given, truth.own, form.names, strict=True):
        if mine is not None and theirs is not None and bool(theirs.any()) and not bool(mine.any()):
            text = "zero everywhere, and the reference's is not: what records its gradient knows no tangents"
            raise case.failed(f"{name} is {text}")


def _reference_has_form(form: Form) -> bool:
    try:
        found = form.of(form.subject.reference)
    except RuntimeError:  # NotImplementedError among them
        return False
    return all(tensor is None or bool(tensor.isfinite().all()) for _, tensor in found)
