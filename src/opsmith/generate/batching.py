"""vmap of a pointwise operator: one more dimension in front, and the kernel as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..runtime.operator import Operator
    from .compiler import Arguments


def by_broadcasting(
    take: Callable[[Sequence[Any]], Arguments], operator: Operator, args: Sequence[Any], in_dims: Sequence[Any]
) -> Any:
    """The operator on batched arguments, its results batched in front; NotImplemented where broadcasting cannot give
    vmap's meaning. A backward sums to the shapes of its inputs, so one that is not batched is repeated for each of the
    batch."""
    arguments = take(args)
    sums = arguments.inner is not None
    signature = operator.signature
    tensors, dims = signature.flatten(args), signature.flatten(in_dims)
    size = next(t.shape[dim] for t, dim in zip(tensors, dims, strict=True) if t is not None and dim is not None)
    pairs = [(tensor, dim) for tensor, dim in zip(tensors, dims, strict=True) if tensor is not None]
    ranks = [tensor.ndim - (dim is not None) for tensor, dim in pairs]
    full = max(ranks)
    # A tensor without dimensions yields to others in promotion; batched it would have one.
    if len({tensor.dtype for tensor, _ in pairs}) > 1 and any(
        rank == 0 and dim is not None for rank, (_, dim) in zip(ranks, pairs, strict=True)
    ):
        return NotImplemented
    arranged = [
        None if t is None else _arranged(t, dim, size, full, sums) for t, dim in zip(tensors, dims, strict=True)
    ]
    returned = operator.call_arranged(signature.unflatten(args, arranged))
    results = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    if sums:
        asked = [arguments.grads + index for index, needed in enumerate(arguments.needs) if needed]
        ranks_asked = [tensors[index].ndim - (dims[index] is not None) for index in asked]
        results = [_squeezed(result, rank) for result, rank in zip(results, ranks_asked, strict=True)]
    elif any(result.ndim != full + 1 for result in results):
        return NotImplemented
    return results[0] if isinstance(returned, torch.Tensor) else type(returned)(results)


def _arranged(tensor: torch.Tensor, dim: int | None, size: int, full: int, repeat: bool) -> torch.Tensor:
    if dim is None and not repeat:
        return tensor
    front = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
    for _ in range(full + 1 - front.ndim):
        front = front.unsqueeze(1)
    return front


def _squeezed(result: torch.Tensor, rank: int) -> torch.Tensor:
    while result.ndim > rank + 1:
        result = result.squeeze(1)
    return result
