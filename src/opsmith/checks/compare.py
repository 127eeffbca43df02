"""An op against its reference on one sample: results and gradients, within what rounding explains.

The truth is the reference in float64. What is allowed is measured, not chosen: twice the error the reference itself
makes in the sample's dtype (for half types: the reference in float32, rounded once), and four units in the last place
of the largest value. In float64, where no wider type tells the error, it is float32's in units of the last place. Of a
few numbers one error tells little, for it may be small by luck: there it is measured several times, at points nearby
and with other gradients of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..samples import Sample
from ..schema import flatten, unflatten

if TYPE_CHECKING:
    from ..op import Op

HALF = (torch.float16, torch.bfloat16)
FEW = 16
DRAWS = 4

Named = tuple[str, "torch.Tensor | None"]


@dataclass(frozen=True)
class Comparison:
    """One tensor of the op beside the reference's."""

    what: str
    ok: bool
    error: float
    allowed: float
    message: str = ""

    def __bool__(self) -> bool:
        return self.ok


def compare_samples(
    op: Op, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, *, gradients: bool = True
) -> list[Comparison]:
    """Every comparison on every sample of the op."""
    return [each for sample in op.samples_for(device, dtype) for each in compare(op, sample, gradients=gradients)]


def compare(op: Op, sample: Sample, *, gradients: bool = True) -> list[Comparison]:
    """The op's results on a sample, and the gradients of its floating inputs, beside the reference's."""
    args = op.signature.bind(sample.args, dict(sample.kwargs))
    prefix = f"{sample.name}: " if sample.name else ""

    def called(values: Sequence[Any]) -> Any:
        positional, keyword = op.default.forward.arranged(values)
        return op(*positional, **keyword)

    given = _evaluate(op, called, args, None, gradients)
    own = _evaluate(op, op.inline_like_call, args, _working_dtype(args), gradients)
    truth = _evaluate(op, op.inline_like_call, args, torch.float64, gradients)
    noise = _noise(op, args, gradients, truth)
    found: list[Comparison] = []
    for (what, mine), (_, theirs), (_, exact), own_error in zip(given, own, truth, noise, strict=True):
        found.append(_judged(prefix + what, mine, theirs, exact, own_error))
    return found


def _noise(op: Op, args: Sequence[Any], gradients: bool, truth: Sequence[Named]) -> list[float]:
    """The reference's error for each tensor, where the one measured beside `truth` does not tell it."""
    dtype = _declared(args)
    largest = [0.0] * len(truth)
    if dtype in HALF:  # rounding to the half type hides what comes before
        return largest
    arguments = op.signature.arguments
    narrow = torch.float32
    rounded = [t if t is None or not t.is_floating_point() else t.to(narrow) for t in flatten(arguments, args)]
    few = min((tensor.numel() for _, tensor in truth if tensor is not None), default=0) < FEW
    draws = DRAWS if few else 1 if dtype == torch.float64 else 0
    for draw in range(draws):
        near = [t if t is None or not t.is_floating_point() else t * (1 + draw / 64) for t in rounded]
        values = unflatten(arguments, args, near)
        inexact = _evaluate(op, op.inline_like_call, values, narrow, gradients, draw)
        exact = _evaluate(op, op.inline_like_call, values, torch.float64, gradients, draw)
        errors = [_error(mine, theirs) for (_, mine), (_, theirs) in zip(inexact, exact, strict=True)]
        largest = [max(before, error) for before, error in zip(largest, errors, strict=True)]
    return [error * torch.finfo(dtype).eps / torch.finfo(narrow).eps for error in largest]


def _error(inexact: torch.Tensor | None, exact: torch.Tensor | None) -> float:
    if inexact is None or exact is None or not exact.is_floating_point():
        return 0.0
    difference = inexact.to(torch.float64) - exact
    return _largest(difference[difference.isfinite()])  # where float32 overflows it tells nothing of float64


def _evaluate(
    op: Op,
    function: Callable[[Sequence[Any]], Any],
    args: Sequence[Any],
    dtype: torch.dtype | None,
    gradients: bool,
    draw: int = 0,
) -> list[Named]:
    """Named results and gradients of a call, with floating inputs cast to `dtype` where one is given."""
    arguments = op.signature.arguments
    tensors = [None if tensor is None else _leaf(tensor, dtype, gradients) for tensor in flatten(arguments, args)]
    values = unflatten(arguments, args, tensors)
    if dtype is not None:
        values = [dtype if isinstance(v, torch.dtype) and v.is_floating_point else v for v in values]
    # An in-place op cannot write into a leaf: it is given a copy that has a history.
    called = [v.clone() if a.mutated else v for a, v in zip(arguments, values, strict=True)]
    results = _listed(function(called))
    named = [(name, result.detach()) for name, result in zip(_names(op, results), results, strict=True)]
    if not gradients:
        return [*named]
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    targets = [result for result in results if result.requires_grad]
    found: Iterable[torch.Tensor | None] = [None] * len(leaves)
    if targets and leaves:
        weights = [_weights(target, draw) for target in targets]
        found = torch.autograd.grad(targets, leaves, weights, allow_unused=True)
    labels = _gradient_labels(op, tensors, values)
    return [*named, *zip(labels, found, strict=True)]


def _judged(
    what: str, mine: torch.Tensor | None, theirs: torch.Tensor | None, exact: torch.Tensor | None, noise: float
) -> Comparison:
    if mine is None or theirs is None or exact is None:
        # Torch says None where a gradient is zero by structure; the op may say zero.
        left = 0.0 if mine is None else float(mine.abs().max()) if mine.numel() else 0.0
        right = 0.0 if theirs is None else float(theirs.abs().max()) if theirs.numel() else 0.0
        return Comparison(what, left == right == 0.0, max(left, right), 0.0, "one side has no gradient")
    if mine.shape != theirs.shape:
        message = f"shape {tuple(mine.shape)} beside {tuple(theirs.shape)}"
        return Comparison(what, False, float("inf"), 0.0, message)
    if not mine.is_floating_point():
        same = bool(torch.equal(mine, theirs))
        return Comparison(what, same, 0.0 if same else float("inf"), 0.0, "" if same else "values differ")
    if mine.numel() == 0:
        return Comparison(what, True, 0.0, 0.0)
    exact = exact.to(torch.float64)
    rounded = theirs.to(mine.dtype).to(torch.float64)
    finite = exact.isfinite()
    specials = torch.equal(mine.to(torch.float64)[~finite].nan_to_num(nan=1.5), rounded[~finite].nan_to_num(nan=1.5))
    error = _largest((mine.to(torch.float64) - exact)[finite])
    own = max(noise, _largest((rounded - exact)[finite]))
    allowed = 2 * own + 4 * torch.finfo(mine.dtype).eps * _largest(exact[finite])
    ok = specials and error <= allowed
    message = (
        "" if ok else f"off by {error:.3g}, {allowed:.3g} is allowed" if specials else "inf or NaN in other places"
    )
    return Comparison(what, ok, error, allowed, message)


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _leaf(tensor: torch.Tensor, dtype: torch.dtype | None, gradients: bool) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor.detach()
    # Cast in place of cloning, so that the strides of the sample are the strides of the leaf.
    return tensor.detach().to(dtype or tensor.dtype).requires_grad_(gradients)


def _weights(result: torch.Tensor, draw: int = 0) -> torch.Tensor:
    """The gradient handed to a result: fixed, of its dtype's precision in every dtype, with no symmetry to hide in."""
    count = torch.arange(result.numel(), device=result.device, dtype=torch.float64).reshape(result.shape)
    return (torch.cos(count + draw) + 0.5).to(torch.bfloat16).to(result.dtype)


def _working_dtype(args: Sequence[Any]) -> torch.dtype | None:
    """float32 where the sample is in a half type: the oracle rounds once."""
    return torch.float32 if _declared(args) in HALF else None


def _declared(args: Sequence[Any]) -> torch.dtype:
    for value in args:
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                return tensor.dtype
    return torch.float32


def _listed(returned: Any) -> list[torch.Tensor]:
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _names(op: Op, results: Sequence[torch.Tensor]) -> list[str]:
    return ["result"] if len(results) == 1 else [f"result {index}" for index in range(len(results))]


def _gradient_labels(op: Op, tensors: Sequence[torch.Tensor | None], values: Sequence[Any]) -> list[str]:
    labels: list[str] = []
    for argument, value in zip(op.signature.arguments, values, strict=True):
        if not argument.is_tensor:
            continue
        several = isinstance(value, (list, tuple))
        for index, tensor in enumerate(flatten([argument], [value])):
            if tensor is not None and tensor.requires_grad:
                labels.append(f"gradient of {argument.name}" + (f"[{index}]" if several else ""))
    return labels
