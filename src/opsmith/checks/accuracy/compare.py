"""An op compared with its reference on one call: results and gradients, within rounding error (see budget.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.samples import Sample
from ...reference.signature import Argument
from .evaluate import evaluate
from .rounding import rounding_of
from .truth import Comparison, Function, Rounding, Truth

if TYPE_CHECKING:
    from ...operator.op import Op

__all__ = ["Comparison", "Truth", "compare", "compare_calls", "compare_samples"]


def compare_samples(
    op: Op, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, *, gradients: bool = True
) -> list[Comparison]:
    """Every comparison on every sample of the op."""
    return [each for sample in op.samples_for(device, dtype) for each in compare(op, sample, gradients=gradients)]


def compare(op: Op, sample: Sample, *, gradients: bool = True) -> list[Comparison]:
    """The op's results on a sample, and the gradients of its floating inputs, beside the reference's."""
    args = op.signature.bind(sample.args, dict(sample.kwargs))

    def called(values: Sequence[Any]) -> Any:
        positional, keyword = op.signature.arranged(values)
        return op(*positional, **keyword)

    prefix = f"{sample.name}: " if sample.name else ""
    rounding = rounding_of(op, args, gradients)
    return compare_calls(op.signature.arguments, called, op._inline_call, args, gradients, prefix, rounding)


def compare_calls(
    arguments: Sequence[Argument],
    called: Function,
    reference: Function,
    args: Sequence[Any],
    gradients: bool = True,
    prefix: str = "",
    rounding: Rounding | None = None,
) -> list[Comparison]:
    """What `called` gives for these arguments beside what `reference` does."""
    truth = Truth(arguments, reference, args, gradients, rounding)
    return truth.beside(evaluate(arguments, called, args, gradients=gradients), prefix)
