"""One call of an op compared with its reference, for tests, `opsmith demo` and printed reproductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..operator.adopted import Adopted
from ..operator.op import Op
from ..operator.samples import Sample
from ..reference.signature import flatten
from . import values as call_values
from .accuracy.evaluate import evaluate
from .accuracy.rounding import rounding_of
from .accuracy.truth import Comparison, Truth, assert_all
from .cases.case import Case
from .subject import Subject


def assert_matches(op: Op | Adopted, *args: Any, gradients: bool = True, **kwargs: Any) -> None:
    """Raises AssertionError unless the op's results for these arguments, and the gradients of its floating inputs, are
    the reference's within rounding error (opsmith.checks.accuracy.budget).

    Args:
        gradients: False for results only. If any tensors among the arguments require a gradient, only their gradients
            are compared.
    """
    subject, values = Subject(op), op.signature.bind_call(args, kwargs)
    gradients = gradients and subject.differentiates(Case("this call", subject.arguments, tuple(values), ()))
    flat = flatten(subject.arguments, values)
    only = [place for place, tensor in enumerate(flat) if tensor is not None and tensor.requires_grad] or None
    assert_all(_compared(op, values, gradients, only), f"{op.name} is not its reference")


def compare(op: Op, sample: Sample, *, gradients: bool = True) -> list[Comparison]:
    """The op's results on a sample, and the gradients of its floating inputs, compared with the reference's within
    rounding error (accuracy/budget.py)."""
    found = _compared(op, op.signature.bind(sample.args, dict(sample.kwargs)), gradients)
    return [replace(each, what=f"{sample.name}: {each.what}") for each in found] if sample.name else found


def compare_samples(
    op: Op, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, *, gradients: bool = True
) -> list[Comparison]:
    """Every comparison on every sample of the op."""
    return [each for sample in op.samples_for(device, dtype) for each in compare(op, sample, gradients=gradients)]


def _compared(
    op: Op | Adopted, values: Sequence[Any], gradients: bool, only: list[int] | None = None
) -> list[Comparison]:
    arguments = op.signature.arguments
    truth = Truth(arguments, op._inline_call, values, gradients, rounding_of(op, values, gradients), only=only)
    given = evaluate(arguments, lambda given: call_values.call(op, given), values, gradients=gradients, only=only)
    return truth.beside(given)
