"""One call of an op compared with its reference, for tests, `opsmith demo` and printed reproductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.adopted import Adopted
from ...operator.samples import Sample
from ...reference.signature import flatten
from .. import layouts
from .. import values as call_values
from ..accuracy.evaluate import evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Truth, assert_all
from ..cases.case import Case
from ..subject import Subject
from .derivatives import second_gradients, tangents, tangents_of_reference

if TYPE_CHECKING:
    from ...operator.op import Op


def assert_matches(
    op: Op | Adopted,
    *args: Any,
    gradients: bool = True,
    grad_layout: str = "",
    grad_of: int | None = None,
    **kwargs: Any,
) -> None:
    """Raises AssertionError unless the op's results for these arguments, and the gradients of its floating inputs, are
    the reference's within rounding error (opsmith.checks.accuracy.budget).

    Args:
        gradients: False for results only. If any tensors among the arguments require a gradient, only their gradients
            are compared.
        grad_layout: the memory layout of the incoming gradients: a name of opsmith.checks.layouts.
        grad_of: the index of the only result with an incoming gradient.
    """
    subject, case = _call(op, args, kwargs)
    gradients = gradients and subject.differentiates(case)
    flat = flatten(subject.arguments, case.values)
    chosen = [place for place, tensor in enumerate(flat) if tensor is not None and tensor.requires_grad]
    lay = layouts.LAYOUTS[grad_layout] if grad_layout else None
    options: dict[str, Any] = {"only": chosen or None, "lay": lay}

    def picked(returned: Any) -> Any:
        return returned if grad_of is None else call_values.listed(returned)[grad_of]

    def reference(values: Sequence[Any]) -> Any:
        return picked(subject.inline(values))

    def own(values: Sequence[Any]) -> Any:
        return picked(subject.raw(values))

    detached = call_values.mapped(subject.arguments, case.values, lambda tensor: tensor.detach())
    rounding = rounding_of(op, detached, gradients)
    truth = Truth(subject.arguments, reference, case.values, gradients, rounding, **options)
    given = evaluate(subject.arguments, own, case.values, gradients=gradients, **options)
    assert_all(truth.beside(given), f"{op.name} is not its reference")


def assert_second_gradients_match(op: Op | Adopted, *args: Any, **kwargs: Any) -> None:
    """Raises AssertionError unless the gradients of the op's gradients are the reference's, within rounding
    error."""
    assert_all(second_gradients(*_call(op, args, kwargs)).compared(), f"{op.name} is not its reference")


def assert_tangents_match(op: Op | Adopted, *args: Any, by: str = "jvp", **kwargs: Any) -> None:
    """Raises AssertionError unless the op's tangents are the reference's, within rounding error: by
    torch.func.jvp, by the "dual" numbers of torch.autograd.forward_ad, or by "reverse" mode over reverse mode."""
    subject, case = _call(op, args, kwargs)
    form = tangents(subject, case, by)
    found = form.renamed(tangents_of_reference(subject, case).beside(form.of(subject.call)))
    assert_all(found, f"{op.name} is not its reference")


def compare(op: Op, sample: Sample, *, gradients: bool = True) -> list[Comparison]:
    """The op's results on a sample, and the gradients of its floating inputs, compared with the reference's within
    rounding error (accuracy/budget.py)."""
    arguments, values = op.signature.arguments, op.signature.bind(sample.args, dict(sample.kwargs))
    truth = Truth(arguments, op._inline_call, values, gradients, rounding_of(op, values, gradients))
    mine = evaluate(arguments, lambda given: call_values.call(op, given), values, gradients=gradients)
    return truth.beside(mine, f"{sample.name}: " if sample.name else "")


def compare_samples(
    op: Op, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, *, gradients: bool = True
) -> list[Comparison]:
    """Every comparison on every sample of the op."""
    return [each for sample in op.samples_for(device, dtype) for each in compare(op, sample, gradients=gradients)]


def _call(op: Op | Adopted, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Subject, Case]:
    values = op.signature.bind_call(args, kwargs)
    return Subject(op), Case("this call", op.signature.arguments, tuple(values), ())
