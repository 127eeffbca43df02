"""One call of an op compared with its reference, for tests, `opsmith demo` and printed reproductions."""

from __future__ import annotations

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
    detached = call_values.mapped(subject.arguments, values, lambda tensor: tensor.detach())
    truth = Truth(subject.arguments, subject.inline, values, gradients, rounding_of(op, detached, gradients), only=only)
    given = evaluate(subject.arguments, subject.raw, values, gradients=gradients, only=only)
    assert_all(truth.beside(given), f"{op.name} is not its reference")


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
