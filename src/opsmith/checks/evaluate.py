"""One call, looked at closely: its results, and the gradients of its floating inputs, each under a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..schema import Argument, flatten, unflatten

Named = tuple[str, "torch.Tensor | None"]


def evaluate(
    arguments: Sequence[Argument],
    function: Callable[[Sequence[Any]], Any],
    args: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    gradients: bool = True,
    draw: int = 0,
    change: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> list[Named]:
    """Named results and gradients of a call, with floating inputs cast to `dtype` where one is given. `draw` picks the
    gradients that the results are given; `change` is applied to the floating inputs and to those gradients."""
    tensors = [
        None if tensor is None else _leaf(tensor, dtype, gradients, change) for tensor in flatten(arguments, args)
    ]
    values = unflatten(arguments, args, tensors)
    if dtype is not None:
        values = [dtype if isinstance(v, torch.dtype) and v.is_floating_point else v for v in values]
    # An in-place op cannot write into a leaf: it is given a copy that has a history.
    called = [v.clone() if a.mutated else v for a, v in zip(arguments, values, strict=True)]
    results = _listed(function(called))
    named = [(name, result.detach()) for name, result in zip(_names(results), results, strict=True)]
    if not gradients:
        return [*named]
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    targets = [result for result in results if result.requires_grad]
    found: Iterable[torch.Tensor | None] = [None] * len(leaves)
    if targets and leaves:
        weights = [weights_of(target, draw) for target in targets]
        weights = [weight if change is None else change(weight) for weight in weights]
        found = torch.autograd.grad(targets, leaves, weights, allow_unused=True)
    return [*named, *zip(_gradient_labels(arguments, values), found, strict=True)]


def weights_of(result: torch.Tensor, draw: int = 0) -> torch.Tensor:
    """The gradient handed to a result: fixed, of its dtype's precision in every dtype, with no symmetry to hide in."""
    count = torch.arange(result.numel(), device=result.device, dtype=torch.float64).reshape(result.shape)
    return (torch.cos(count + draw) + 0.5).to(torch.bfloat16).to(result.dtype)


def declared_dtype(args: Sequence[Any]) -> torch.dtype:
    """Of the first floating tensor."""
    for value in args:
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                return tensor.dtype
    return torch.float32


def _leaf(
    tensor: torch.Tensor,
    dtype: torch.dtype | None,
    gradients: bool,
    change: Callable[[torch.Tensor], torch.Tensor] | None,
) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor.detach()
    # Cast in place of cloning, so that the strides of the sample are the strides of the leaf.
    leaf = tensor.detach().to(dtype or tensor.dtype)
    return (leaf if change is None else change(leaf)).requires_grad_(gradients)


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
