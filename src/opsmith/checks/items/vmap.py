"""torch.vmap matches a loop, for every combination of batched arguments, nested, and with gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...operator.op import Op
from ..calls.derivatives import has_second_gradients
from ..calls.vmap import Dims, by_vmap, compared, stacked
from ..cases.case import Case
from ..subject import Subject
from ._cases import generated_case, has_gradients, skip_random
from ._compare import failing_on_error, require

QUICK, FULL = 4, 27
"""Combinations that are tried."""


def check(subject: Subject) -> str:
    case = generated_case(subject)
    skip_random(subject, case)
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
    options = f"in_dims={tuple(dims)}, times={times}, of_gradient={of_gradient}, gradients={gradients}"
    names = ", ".join(argument.name for argument in case.arguments)
    lines = [f"opsmith.checks.assert_vmap_matches(op, {names}, {options})"]
    how = (case.values, dims, times, of_gradient, gradients)
    derived = isinstance(subject.op, Op) and subject.op._families.default.forward.written_vmap is None
    with failing_on_error(case, lines, (lambda: by_vmap(subject, subject.reference, *how)) if derived else None):
        found = compared(subject, *how)
    require(case, found, lines)


def _batched(case: Case, dims: Dims) -> Case:
    chosen = iter(dims)
    for argument, value in zip(case.arguments, case.values, strict=True):
        dim = next(chosen) if argument.is_tensor else None
        if dim is None:
            continue
        code = f"opsmith.checks.calls.vmap.stacked({{}}, {dim})"
        if isinstance(value, (list, tuple)):
            several = [None if each is None else stacked(each, dim) for each in value]
            inner = f"[None if each is None else {code.format('each')} for each in {argument.name}]"
            case = case.changed(argument.name, several, inner)
        else:
            case = case.changed(argument.name, stacked(value, dim), code.format(argument.name))
    return case.named(f"{case.name}, in_dims={tuple(dims)}")


def _tensor_values(case: Case) -> list[object]:
    return [value for argument, value in zip(case.arguments, case.values, strict=True) if argument.is_tensor]


def _is_given(value: object) -> bool:
    return value is not None and value != []
