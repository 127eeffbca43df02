"""An op compared with its reference on one call: results and gradients, within rounding error (see budget.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...operator.samples import Sample
from .. import values as call_values
from .evaluate import evaluate
from .rounding import rounding_of
from .truth import Comparison, Truth

if TYPE_CHECKING:
    from ...operator.op import Op


def compare_samples(
    op: Op, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, *, gradients: bool = True
) -> list[Comparison]:
    """Every comparison on every sample of the op."""
    return [each for sample in op.samples_for(device, dtype) for each in compare(op, sample, gradients=gradients)]


def compare(op: Op, sample: Sample, *, gradients: bool = True) -> list[Comparison]:
    """The op's results on a sample, and the gradients of its floating inputs, compared with the reference's."""
    arguments, values = op.signature.arguments, op.signature.bind(sample.args, dict(sample.kwargs))
    truth = Truth(arguments, op.inline_like_call, values, gradients, rounding_of(op, values, gradients))
    mine = evaluate(arguments, lambda given: call_values.call(op, given), values, gradients=gradients)
    return truth.beside(mine, f"{sample.name}: " if sample.name else "")
