"""The arguments of a call in schema order, and the tensors among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..operator.adopted import Adopted
from ..operator.op import Op
from ..reference.signature import Argument, flatten, unflatten


def listed(returned: Any) -> list[torch.Tensor]:
    """The results of a call as a list."""
    return list(returned) if isinstance(returned, (tuple, list)) else [] if returned is None else [returned]


def call(op: Op | Adopted, values: Sequence[Any]) -> Any:
    positional, keyword = op.signature.arranged(values)
    return op(*positional, **keyword)


def copied(arguments: Sequence[Argument], values: Sequence[Any]) -> list[Any]:
    """The values, with copies of those that the op changes in place."""
    return [value.clone() if argument.mutated else value for argument, value in zip(arguments, values, strict=True)]


def present(arguments: Sequence[Argument], values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors, without absent ones."""
    return [tensor for tensor in flatten(arguments, values) if tensor is not None]


def floating(arguments: Sequence[Argument], values: Sequence[Any]) -> list[torch.Tensor]:
    return [tensor for tensor in present(arguments, values) if tensor.is_floating_point()]


def mapped(arguments: Sequence[Argument], values: Sequence[Any], change: Callable[[torch.Tensor], Any]) -> list[Any]:
    """The values, with every tensor changed."""
    tensors = [None if tensor is None else change(tensor) for tensor in flatten(arguments, values)]
    return unflatten(arguments, values, tensors)


def with_tensors(arguments: Sequence[Argument], values: Sequence[Any], tensors: Iterable[torch.Tensor]) -> list[Any]:
    """The values, with other tensors in place of those that are present."""
    fresh = iter(tensors)
    return mapped(arguments, values, lambda tensor: next(fresh))


def with_floating(arguments: Sequence[Argument], values: Sequence[Any], tensors: Iterable[torch.Tensor]) -> list[Any]:
    """The values, with other tensors in place of the floating ones."""
    fresh = iter(tensors)
    return mapped(arguments, values, lambda tensor: next(fresh) if tensor.is_floating_point() else tensor)


def named_tensors(arguments: Sequence[Argument], values: Sequence[Any]) -> list[tuple[str, Argument, torch.Tensor]]:
    """Each tensor with the expression that names it, and its argument."""
    found = []
    for argument, value in zip(arguments, values, strict=True):
        for index, tensor in enumerate(flatten([argument], [value])):
            if tensor is not None:
                name = f"{argument.name}[{index}]" if isinstance(value, (list, tuple)) else argument.name
                found.append((name, argument, tensor))
    return found
