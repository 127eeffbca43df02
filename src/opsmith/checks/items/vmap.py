"""torch.vmap matches a loop, for every combination of batched arguments, nested, and with gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...operator.op import Op
from ...reference.signature import Argument, flatten, unflatten
from ..accuracy.evaluate import Named, evaluate, in_pairs, weights_of
from ..accuracy.truth import Function, Rounding, Truth
from ..cases.case import Case
from ..subject import Subject, listed
from ._cases import generated_case, has_gradients, skip_random
from ._compare import failing_on_error, require, same
from ._derivatives import has_second_gradients

QUICK, FULL = 4, 27
"""Combinations that are tried."""

Dims = Sequence["int | None"]
Tensors = Callable[..., tuple[torch.Tensor, ...]]
"""A function of the tensors of a call, absent ones included."""


def check(subject: Subject) -> str:
    case = generated_case(subject)
    skip_random(subject, case)
    return check_call(subject, case)


def check_call(subject: Subject, case: Case) -> str:
    gradients = has_gradients(subject, case)
    combinations = _combinations(subject, case)
    for dims in combinations:
        _check_batch(subject, _batched(case, dims), dims, gradients)
    every = tuple(0 if _is_given(value) else None for value in _tensor_values(case))
    batched = _batched(case, every)
    _check_batch(subject, _batched(batched, every), every, gradients, times=2)
    if gradients:
        _check_batch(subject, batched, every, has_second_gradients(subject, case), of_gradient=True)
    return f"{len(combinations)} combinations of in_dims, nested" + (", and vmap of grad" if gradients else "")


def _combinations(subject: Subject, case: Case) -> Sequence[Dims]:
    """All of 0, -1 and None for each tensor: first one with every dimension in it, then each tensor alone."""
    given = [(0, -1, None) if _is_given(value) else (None,) for value in _tensor_values(case)]
    every = [dims for dims in itertools.product(*given) if any(dim is not None for dim in dims)]
    mutated = [index for index, argument in enumerate(subject.signature.tensors) if argument.mutated]
    # What is changed in place has no room for a batch if it is not batched itself.
    every = [dims for dims in every if all(dims[index] is not None for index in mutated)]
    kinds = max(len(set(dims)) for dims in every)
    mixed = [dims for dims in every if len(set(dims)) == kinds and (dims[0] == 0 or kinds == 1)]
    alone = [dims for dims in every if sum(dim is not None for dim in dims) == 1]
    alone = sorted(alone, key=lambda dims: (dims.index(-1) % 2 == 0) if -1 in dims else dims.index(0) % 2 == 1)
    return list(dict.fromkeys([*mixed[:1], *alone, *every]))[: FULL if subject.full else QUICK]


def _check_batch(
    subject: Subject, case: Case, dims: Dims, gradients: bool, times: int = 1, of_gradient: bool = False
) -> None:
    """vmap of the op compared with a loop: over the op, and where that differs in a bit, over the reference.

    Args:
        case: with batches of tensors (see `_batched`).
        dims: in_dims of torch.vmap: one per tensor argument, None where it is not batched.
        times: 2 for vmap inside vmap, over two dimensions that were stacked one after the other.
        of_gradient: for torch.vmap(torch.func.grad(op)), the gradient of each single call.
        gradients: whether to compare gradients through the batch.
    """
    arguments = subject.functional_arguments

    def mapped(function: Function, batch: Callable[[Any, Any], Any] = torch.vmap) -> Function:
        return _over_batch(arguments, function, dims, times, of_gradient, batch)

    def evaluated(function: Function) -> list[Named]:
        return evaluate(arguments, function, case.values, gradients=gradients)

    derived = isinstance(subject.op, Op) and subject.op._families.default.forward.written_vmap is None
    with failing_on_error(case, reference=(lambda: evaluated(mapped(subject.reference))) if derived else None):
        mine, alike = evaluated(mapped(subject.call)), evaluated(mapped(subject.call, _loop))
        if same(mine, alike):
            return
        rounding = Rounding(pointwise=subject.elementwise and not of_gradient)
        found = Truth(arguments, mapped(subject.reference, _loop), case.values, gradients, rounding).beside(mine)
    require(case, found)


def _batched(case: Case, dims: Dims) -> Case:
    """The case with a batch of each tensor that has one of `dims`."""
    flat = zip(flatten(case.arguments, case.values), _flat_dims(case.arguments, case.values, dims), strict=True)
    stacked = [tensor if tensor is None or dim is None else _stacked(tensor, dim) for tensor, dim in flat]
    values = tuple(unflatten(case.arguments, case.values, stacked))
    return replace(case, values=values, name=f"{case.name}, in_dims={tuple(dims)}")


def _stacked(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """A batch of three tensors like this one. Sorted integers are repeated unchanged: they may be offsets."""
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.stack([tensor, tensor.flip(tuple(range(tensor.ndim))), tensor * 0.75], dim)
    ordered = tensor.ndim == 0 or bool((tensor.to(torch.int64).diff(dim=-1) >= 0).all())
    return torch.stack([tensor, tensor if ordered else tensor.flip(tuple(range(tensor.ndim))), tensor], dim)


def _over_batch(
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


def _tensor_values(case: Case) -> list[object]:
    return [value for argument, value in zip(case.arguments, case.values, strict=True) if argument.is_tensor]


def _is_given(value: object) -> bool:
    return value is not None and value != []
