"""One call in detail: its results, and the gradients of its floating inputs, each with a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...reference.signature import Argument, flatten, unflatten
from ...reference.tensors import copied_as_laid_out

if TYPE_CHECKING:
    from ...operator.adopted import Adopted
    from ...operator.op import Op

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
    """Named results and gradients of a call, with floating inputs cast to `dtype` where one is given. `draw` picks the
    gradients that the results are given; `change` is applied to the floating inputs and to those gradients, `lay` to
    the gradients alone. `only`: the tensors that ask for a gradient, by their places among all tensors."""
    flat = flatten(arguments, args)
    asked = [gradients and (only is None or place in only) for place in range(len(flat))]
    tensors = [None if t is None else _leaf(t, dtype, ask, change) for t, ask in zip(flat, asked, strict=True)]
    values = unflatten(arguments, args, tensors)
    if dtype is not None:
        values = [dtype if isinstance(v, torch.dtype) and v.is_floating_point else v for v in values]
    # An in-place op cannot write into a leaf: it is given a copy that has a history, laid out as the leaf is.
    called = [_copy(v) if a.mutated else v for a, v in zip(arguments, values, strict=True)]
    results = _listed(function(called))
    named = [(name, in_pairs(result.detach())) for name, result in zip(_names(results), results, strict=True)]
    if not gradients:
        return [*named]
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    targets = [result for result in results if result.requires_grad]
    found: Iterable[torch.Tensor | None] = [None] * len(leaves)
    if targets and leaves:
        weights = [weights_of(target, draw) for target in targets]
        # First laid out: where that repeats one number, each of them is changed for itself.
        weights = [weight if lay is None else lay(weight) for weight in weights]
        weights = [weight if change is None else change(weight) for weight in weights]
        found = torch.autograd.grad(targets, leaves, weights, allow_unused=True)
    return [*named, *zip(_gradient_labels(arguments, values), found, strict=True)]


def outputs(
    op: Op | Adopted, *args: Any, gradients: bool = True, reference: bool = False, **kwargs: Any
) -> list[torch.Tensor | None]:
    """The results of a call, then the gradients of its floating inputs: all that it leaves in memory. `reference`: the
    same of the reference."""

    def called(values: Sequence[Any]) -> Any:
        if reference:
            return op._inline_call(values)
        pairs = list(zip(op.signature.arguments, values, strict=True))
        keyword = {argument.name: value for argument, value in pairs if argument.keyword_only}
        return op(*[value for argument, value in pairs if not argument.keyword_only], **keyword)

    values = op.signature.bind_call(args, kwargs)
    return [tensor for _, tensor in evaluate(op.signature.arguments, called, values, gradients=gradients)]


def weights_of(result: torch.Tensor, draw: int = 0) -> torch.Tensor:
    """The gradient handed to a result: fixed, with no symmetry to hide in, and the same numbers in every dtype: those
    that bfloat16 holds and float16 does. (One in a million is small enough to be rounded by the latter.)"""
    places = torch.arange(result.numel(), device=result.device).reshape(result.shape)
    return weights_at(places, result.dtype, draw)


def weights_at(places: torch.Tensor, dtype: torch.dtype, draw: int = 0) -> torch.Tensor:
    """The same of some of a result's elements, by their places in its order."""
    if dtype.is_complex:
        return torch.complex(*(weights_at(places, torch.float64, draw + part) for part in (0, 1))).to(dtype)
    return (torch.cos(places.double() + draw) + 0.5).to(torch.bfloat16).to(torch.float16).to(dtype)


def floating_dtypes(args: Sequence[Any]) -> list[torch.dtype]:
    """Of all tensors, each once, the first one's first."""
    flat = [each for value in args for each in (value if isinstance(value, (list, tuple)) else [value])]
    tensors = [each for each in flat if isinstance(each, torch.Tensor)]
    return list(dict.fromkeys(tensor.dtype for tensor in tensors if tensor.is_floating_point()))


def _leaf(tensor: torch.Tensor, dtype: torch.dtype | None, asked: bool, change: Change | None) -> torch.Tensor:
    if tensor.is_complex() and dtype is not None:
        return tensor.detach().to(torch.complex128 if dtype is torch.float64 else torch.complex64)
    if not tensor.is_floating_point():
        return tensor.detach()
    # Cast in place of cloning, so that the strides of the sample are the strides of the leaf.
    leaf = tensor.detach().to(dtype or tensor.dtype)
    return (leaf if change is None else change(leaf)).requires_grad_(asked)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor.clone()
    if type(tensor) is not torch.Tensor:  # a fake one, which has no memory to begin anywhere
        fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return fresh.copy_(tensor)
    laid = copied_as_laid_out(tensor)
    # No view, as autograd sees it: autograd handles a view changed in place differently.
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    copy.set_(laid.untyped_storage(), laid.storage_offset(), laid.shape, laid.stride())
    return copy.copy_(tensor) if tensor.requires_grad else copy


def in_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones, which have last places and tangents of their own."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _listed(returned: Any) -> list[torch.Tensor]:
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _names(results: Sequence[torch.Tensor]) -> list[str]:
    return ["result"] if len(results) == 1 else [f"result {index}" for index in range(len(results))]


def _gradient_labels(arguments: Sequence[Argument], values: Sequence[Any]) -> list[str]:
    labels: list[str] = []
    for argument, value in zip(arguments, values, strict=True):
        if not argument.is_tensor:
            continue
        several = isinstance(value, (list, tuple))
        for index, tensor in enumerate(flatten([argument], [value])):
            if tensor is not None and tensor.requires_grad:
                labels.append(f"gradient of {argument.name}" + (f"[{index}]" if several else ""))
    return labels
