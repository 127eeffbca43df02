"""Results and gradients own their memory: they share none with an input or with each other, unless declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .. import memory
from ..accuracy.evaluate import weights_of
from ..cases.case import Case
from ..outcome import Failed
from ..subject import Subject, listed
from ._choice import arguments_of, backward_lines, has_gradients, named_tensors, various_cases

ON = ("cpu", "cuda", "emulated")
NEUTRAL = (0.0, 1.0)
"""Numbers for which an op may have nothing to do, and be tempted to return what it was given."""


def check(subject: Subject) -> str:
    count = 0
    for case in [*various_cases(subject), *_with_nothing_to_do(subject)]:
        if not any(returned.alias_info for returned in subject.overload._schema.returns) and not subject.inplace:
            _results(subject, case)
        if has_gradients(subject, case):
            _gradients(subject, case.requiring())
        count += 1
    return f"{count} calls"


def _with_nothing_to_do(subject: Subject) -> Iterator[Case]:
    case = subject.first_case()
    for argument in subject.arguments:
        if argument.type != "float":
            continue
        for number in NEUTRAL:
            changed = case.changed(argument.name, number, str(number), f"{case.name}, {argument.name}={number}")
            if subject.accepts(changed):
                yield changed


def _results(subject: Subject, case: Case) -> None:
    with torch.no_grad():
        results = listed(subject.raw(case.values))
    named = [(name, tensor) for name, _, tensor in named_tensors(case)]
    named += [(f"results[{index}]", result) for index, result in enumerate(results)]
    lines = [f"results = opsmith.checks.subject.listed(op({arguments_of(case)}))"]
    _apart(case, named, len(named) - len(results), lines)
    with torch.no_grad():
        again = listed(subject.raw(case.values))
    lines += [f"again = opsmith.checks.subject.listed(op({arguments_of(case)}))"]
    held = [(f"results[{index}]", result) for index, result in enumerate(results)]
    held += [(f"again[{index}]", result) for index, result in enumerate(again)]
    _apart(case, held, len(results), lines)


def _gradients(subject: Subject, case: Case) -> None:
    """A gradient becomes a leaf's .grad as it is, and the next one is added to it in place."""
    results, weights = _backward(subject.call, case)
    named = [(name, tensor.detach()) for name, _, tensor in named_tensors(case)]
    named += [(f"results[{index}]", result.detach()) for index, result in enumerate(results)]
    owned = [(f"{name}.grad", leaf.grad) for name, leaf in case.leaves() if leaf.grad is not None]
    lines = [*backward_lines(case), "torch.autograd.backward(results, weights, retain_graph=True)"]
    _apart(case, [*named, *owned], len(named), lines)
    first, second = (_gradients_of_a_call(subject, case) for _ in range(2))
    held = [(f"first[{index}]", grad) for index, grad in enumerate(first) if grad is not None]
    count = len(held)
    held += [(f"second[{index}]", grad) for index, grad in enumerate(second) if grad is not None]
    outputs = f"opsmith.checks.outputs(op, {arguments_of(case)})[-{len(first)}:]"
    _apart(case, held, count, [f"first, second = {outputs}, {outputs}"])
    if _accumulates(results, weights):
        return
    theirs = _backward(subject.reference, case.requiring())
    if _accumulates(*theirs):  # torch itself hands a gradient on as a view, and adds to it; then an op may
        lines += ["torch.autograd.backward(results, weights)"]
        lines += ["assert torch.equal(weights[0], opsmith.checks.accuracy.evaluate.weights_of(results[0]))"]
        raise Failed(f"{case.name}: a second backward adds to the gradient that it is given", case, lines)


def _gradients_of_a_call(subject: Subject, case: Case) -> list[torch.Tensor | None]:
    results = [result for result in subject.call(case.values) if result.requires_grad]
    leaves = [leaf for _, leaf in case.leaves()]
    weights = [weights_of(result) for result in results]
    return list(torch.autograd.grad(results, leaves, weights, allow_unused=True))


def _backward(function: Callable[[Sequence[Any]], list[torch.Tensor]], case: Case) -> tuple[Any, Any]:
    results = [result for result in function(case.values) if result.requires_grad]
    weights = [weights_of(result) for result in results]
    torch.autograd.backward(results, weights, retain_graph=True)
    return results, weights


def _accumulates(results: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> bool:
    """Whether a second backward leaves the gradient that it is given alone."""
    torch.autograd.backward(results, weights)
    return memory.same_bits(weights, [weights_of(result) for result in results])


def _apart(case: Case, named: Sequence[tuple[str, torch.Tensor]], first: int, lines: Sequence[str]) -> None:
    """Raises Failed where one of the tensors from `first` on shares memory with one before it."""
    for index in range(first, len(named)):
        for name, tensor in named[:index]:
            if memory.share_memory(named[index][1], tensor):
                own = named[index][0]
                line = f"assert not opsmith.checks.memory.share_memory({own}, {name})"
                raise Failed(f"{case.name}: {own} shares memory with {name}", case, [*lines, line])
