"""One call in detail: its results, and the gradients of its floating inputs, each with a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from ...reference.signature import Argument, flatten, unflatten
from ...reference.tensors import copied_as_laid_out
from .. import values as call_values

Named = tuple[str, "torch.Tensor | None"]
Change = Callable[[torch.Tensor], torch.Tensor]


def evaluate(
    arguments: Sequence[Argument],
    function: Callable[[Sequence[Any]], Any],
    args: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    gradients: bool = True,
    draw: int = 0,
    change: Change | None = None,
    only: Collection[int] | None = None,
    lay: Change | None = None,
) -> list[Named]:
    """Named results and gradients of a call.

    Args:
        dtype: what floating inputs are cast to.
        draw: selects the incoming gradients of the results.
        change: applied to floating inputs and incoming gradients; `lay` to incoming gradients only.
        only: the positions, among all tensors, of the inputs whose gradient is computed.
    """
    flat = flatten(arguments, args)
    needed = [gradients and (only is None or place in only) for place in range(len(flat))]
    tensors = [None if t is None else _leaf(t, dtype, need, change) for t, need in zip(flat, needed, strict=True)]
    values = unflatten(arguments, args, tensors)
    if dtype is not None:
        values = [dtype if isinstance(v, torch.dtype) and v.is_floating_point else v for v in values]
    # An in-place op cannot write to a leaf: pass a copy that has a history, laid out as the leaf is.
    passed = [_copy(v) if a.mutated else v for a, v in zip(arguments, values, strict=True)]
    results = call_values.listed(function(passed))
    names = ["result"] if len(results) == 1 else [f"result {index}" for index in range(len(results))]
    named: list[Named] = [(name, in_pairs(result.detach())) for name, result in zip(names, results, strict=True)]
    if not gradients:
        return named
    leaves = [(name, t) for name, _, t in call_values.named_tensors(arguments, values) if t.requires_grad]
    targets = [result for result in results if result.requires_grad]
    found: Iterable[torch.Tensor | None] = [None] * len(leaves)
    if targets and leaves:
        weights = [weights_of(target, draw) for target in targets]
        # Laid out first: where the layout repeats a number, each repetition is changed separately.
        weights = [weight if lay is None else lay(weight) for weight in weights]
        weights = [weight if change is None else change(weight) for weight in weights]
        found = torch.autograd.grad(targets, [leaf for _, leaf in leaves], weights, allow_unused=True)
    return [*named, *((f"gradient of {name}", grad) for (name, _), grad in zip(leaves, found, strict=True))]


def outputs(
    op: Op | Adopted, *args: Any, gradients: bool = True, reference: bool = False, **kwargs: Any
) -> list[torch.Tensor | None]:
    """The results of a call of an op, then the gradients of its floating inputs. `reference`: of its reference."""

    def function(values: Sequence[Any]) -> Any:
        return op._inline_call(values) if reference else call_values.call(op, values)

    values = op.signature.bind_call(args, kwargs)
    return [tensor for _, tensor in evaluate(op.signature.arguments, function, values, gradients=gradients)]


def weights_of(result: torch.Tensor, draw: int = 0) -> torch.Tensor:
    """The incoming gradient of a result: deterministic, without symmetry that could hide a fault, and the same numbers
    in every dtype, since bfloat16 and float16 both represent them. (float16 rounds one in a million to a denormal.)"""
    places = torch.arange(result.numel(), device=result.device).reshape(result.shape)
    return weights_at(places, result.dtype, draw)


def weights_at(places: torch.Tensor, dtype: torch.dtype, draw: int = 0) -> torch.Tensor:
    """The incoming gradient of the elements at these positions of a result."""
    if dtype.is_complex:
        return torch.complex(*(weights_at(places, torch.float64, draw + part) for part in (0, 1))).to(dtype)
    return (torch.cos(places.double() + draw) + 0.5).to(torch.bfloat16).to(torch.float16).to(dtype)


def floating_dtypes(args: Sequence[Any]) -> list[torch.dtype]:
    """The distinct floating dtypes among the arguments, in order."""
    flat = [each for value in args for each in (value if isinstance(value, (list, tuple)) else [value])]
    return list(dict.fromkeys(t.dtype for t in flat if isinstance(t, torch.Tensor) and t.is_floating_point()))


def _leaf(tensor: torch.Tensor, dtype: torch.dtype | None, needed: bool, change: Change | None) -> torch.Tensor:
    if tensor.is_complex() and dtype is not None:
        return tensor.detach().to(torch.complex128 if dtype is torch.float64 else torch.complex64)
    if not tensor.is_floating_point():
        return tensor.detach()
    # Cast instead of cloned, so that the leaf keeps the strides of the sample.
    leaf = tensor.detach().to(dtype or tensor.dtype)
    return (leaf if change is None else change(leaf)).requires_grad_(needed)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor.clone()
    if type(tensor) is not torch.Tensor:  # a fake tensor has no memory whose alignment could be kept
        fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return fresh.copy_(tensor)
    laid = copied_as_laid_out(tensor)
    # Not a view for autograd, which handles a view changed in place differently.
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    copy.set_(laid.untyped_storage(), laid.storage_offset(), laid.shape, laid.stride())
    return copy.copy_(tensor) if tensor.requires_grad else copy


def in_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real numbers, which have ULPs and tangents."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
