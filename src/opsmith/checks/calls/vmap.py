"""A call over a batch: torch.vmap compared with a loop over the same calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.adopted import Adopted
from ...reference.signature import Argument, flatten, unflatten
from ..accuracy.evaluate import Named, evaluate, in_pairs, weights_of
from ..accuracy.truth import Comparison, Function, Rounding, Truth, assert_all
from ..memory import same_bits
from ..subject import Subject
from ..values import listed

if TYPE_CHECKING:
    from ...operator.op import Op

Dims = Sequence["int | None"]
Tensors = Callable[..., tuple[torch.Tensor, ...]]
"""A function of the tensors of a call, absent ones included."""


def assert_vmap_matches(
    op: Op | Adopted, *args: Any, in_dims: Dims, times: int = 1, of_gradient: bool = False, gradients: bool = True
) -> None:
    """Raises AssertionError unless torch.vmap of the op gives what a loop over its reference does, within rounding
    error. `args` are all arguments in schema order, with batches of tensors (see `stacked`).

    Args:
        in_dims: as for torch.vmap: one per tensor argument, None where it is not batched.
        times: 2 for vmap inside vmap, over two dimensions that were stacked one after the other.
        of_gradient: for torch.vmap(torch.func.grad(op)), the gradient of each single call.
        gradients: whether to compare gradients through the batch.
    """
    found = compared(Subject(op), args, in_dims, times, of_gradient, gradients)
    assert_all(found, f"{op.name} is not its reference under vmap")


def stacked(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """A batch of three tensors like this one. Sorted integers are repeated unchanged: they may be offsets."""
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.stack([tensor, tensor.flip(tuple(range(tensor.ndim))), tensor * 0.75], dim)
    ordered = tensor.ndim == 0 or bool((tensor.to(torch.int64).diff(dim=-1) >= 0).all())
    return torch.stack([tensor, tensor if ordered else tensor.flip(tuple(range(tensor.ndim))), tensor], dim)


def compared(
    subject: Subject, values: Sequence[Any], in_dims: Dims, times: int, of_gradient: bool, gradients: bool
) -> list[Comparison]:
    """vmap of the op compared with a loop: over the op, and where that differs in a bit, over the reference."""
    arguments = subject.functional_arguments

    def batched(function: Function, batch: Callable[[Any, Any], Any] = _loop) -> Function:
        return _batched(arguments, function, in_dims, times, of_gradient, batch)

    mine = evaluate(arguments, batched(subject.call, torch.vmap), values, gradients=gradients)
    alike = evaluate(arguments, batched(subject.call), values, gradients=gradients)
    if same_bits([tensor for _, tensor in mine], [tensor for _, tensor in alike]):
        return []
    rounding = Rounding(pointwise=subject.keeps_layout and not of_gradient)
    return Truth(arguments, batched(subject.reference), values, gradients, rounding).beside(mine)


def by_vmap(
    subject: Subject,
    function: Function,
    values: Sequence[Any],
    in_dims: Dims,
    times: int,
    of_gradient: bool,
    gradients: bool,
) -> list[Named]:
    """torch.vmap of the op or of its reference."""
    arguments = subject.functional_arguments
    batched = _batched(arguments, function, in_dims, times, of_gradient, torch.vmap)
    return evaluate(arguments, batched, values, gradients=gradients)


def _batched(
    arguments: Sequence[Argument],
    function: Function,
    in_dims: Dims,
    times: int,
    of_gradient: bool,
    batch: Callable[[Any, Any], Any],
) -> Function:
    """A call, or its gradient, over a batch: `batch` is torch.vmap or a loop."""

    def called(given: Sequence[Any]) -> list[torch.Tensor]:
        one = (_gradient_of if of_gradient else _results_of)(arguments, function, given)
        for _ in range(times):
            one = batch(one, _flat_dims(arguments, given, in_dims))
        return list(one(*flatten(arguments, given)))

    return called


def _results_of(arguments: Sequence[Argument], function: Function, values: Sequence[Any]) -> Tensors:
    return lambda *tensors: tuple(listed(function(unflatten(arguments, values, tensors))))


def _gradient_of(arguments: Sequence[Argument], function: Function, values: Sequence[Any]) -> Tensors:
    """The gradient for the first floating tensor."""
    results = _results_of(arguments, function, values)
    place = next(i for i, t in enumerate(flatten(arguments, values)) if t is not None and t.is_floating_point())

    def gradient(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def total(tensor: torch.Tensor) -> torch.Tensor:
            found = [in_pairs(each) for each in results(*tensors[:place], tensor, *tensors[place + 1 :])]
            parts = [(each * weights_of(each)).sum() for each in found if each.is_floating_point()]
            return torch.stack([part.to(torch.promote_types(part.dtype, tensor.dtype)) for part in parts]).sum()

        return (torch.func.grad(total)(tensors[place]),)

    return gradient


def _loop(function: Tensors, dims: Dims) -> Tensors:
    def looped(*tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        pairs = list(zip(tensors, dims, strict=True))
        size = next(t.shape[dim] for t, dim in pairs if t is not None and dim is not None)
        rows = [
            function(*[t if t is None or dim is None else t.select(dim, index) for t, dim in pairs])
            for index in range(size)
        ]
        return tuple(torch.stack(column) for column in zip(*rows, strict=True))

    return looped


def _flat_dims(arguments: Sequence[Argument], values: Sequence[Any], in_dims: Dims) -> tuple[int | None, ...]:
    """One dimension per tensor, from one per tensor argument."""
    dims: list[int | None] = []
    given = iter(in_dims)
    for argument, value in zip(arguments, values, strict=True):
        if argument.is_tensor:
            dim = next(given)
            dims += [None if tensor is None else dim for tensor in flatten([argument], [value])]
    return tuple(dims)
