"""Results and gradients own their memory: they share none with an input or with each other, unless declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .. import memory
from ..accuracy.evaluate import weights_of
from ..accuracy.truth import Function
from ..cases.case import Case
from ..subject import Subject, listed
from ._cases import has_gradients, various_cases
from ._compare import gradients_of, results_and_weights

ON = ("cpu", "cuda", "emulated")
NEUTRAL = (0.0, 1.0)
"""Numbers for which an op may have nothing to do, and may return its input."""

OF_NEXT_CALL = " of the next call"

Tensors = list[torch.Tensor]


def check(subject: Subject) -> str:
    cases = [*various_cases(subject), *_with_nothing_to_do(subject)]
    for case in cases:
        check_call(subject, case)
    return f"{len(cases)} calls"


def check_call(subject: Subject, case: Case) -> None:
    if not any(returned.alias_info for returned in subject.overload._schema.returns) and not subject.inplace:
        _check_results(subject, case)
    if has_gradients(subject, case):
        _check_gradients(subject, case.requiring())


def _with_nothing_to_do(subject: Subject) -> Iterator[Case]:
    case = subject.first_case()
    for argument in subject.arguments:
        for number in NEUTRAL if argument.type == "float" else ():
            changed = case.changed(argument.name, number, str(number), f"{case.name}, {argument.name}={number}")
            if subject.accepts(changed):
                yield changed


def _check_results(subject: Subject, case: Case) -> None:
    with torch.no_grad():
        results, again = (listed(subject.raw(case.values)) for _ in range(2))
    inputs = [(name, tensor) for name, _, tensor in case.named_tensors()]
    _require_apart(case, inputs, _numbered("results", results))
    _require_apart(case, _numbered("results", results), _numbered("results", again, OF_NEXT_CALL))


def _check_gradients(subject: Subject, case: Case) -> None:
    """A gradient becomes a leaf's .grad as it is, and the next one is added to it in place."""
    results, weights = _backward(subject.call, case)
    held = [(name, tensor.detach()) for name, _, tensor in case.named_tensors()]
    held += _numbered("results", [result.detach() for result in results])
    _require_apart(case, held, [(f"{name}.grad", leaf.grad) for name, leaf in case.leaves() if leaf.grad is not None])
    first, second = (gradients_of(case, *results_and_weights(subject.call, case)) for _ in range(2))
    _require_apart(case, _numbered("gradients", first), _numbered("gradients", second, OF_NEXT_CALL))
    # torch itself may return a gradient as a view and add to it; then an op may.
    if not _keeps_weights(results, weights) and _keeps_weights(*_backward(subject.reference, case.requiring())):
        raise case.failed("a second backward adds to the gradient that it is given")


def _backward(function: Function, case: Case) -> tuple[Tensors, Tensors]:
    results, weights = results_and_weights(function, case)
    torch.autograd.backward(results, weights, retain_graph=True)
    return results, weights


def _keeps_weights(results: Tensors, weights: Tensors) -> bool:
    """Whether a second backward leaves the gradient that it is given unchanged."""
    torch.autograd.backward(results, weights)
    return memory.same_bits(weights, [weights_of(result) for result in results])


def _numbered(name: str, tensors: Sequence[torch.Tensor | None], suffix: str = "") -> list[tuple[str, torch.Tensor]]:
    return [(f"{name}[{index}]{suffix}", tensor) for index, tensor in enumerate(tensors) if tensor is not None]


def _require_apart(
    case: Case, older: Sequence[tuple[str, torch.Tensor]], newer: Sequence[tuple[str, torch.Tensor]]
) -> None:
    """Raises Failed if a new tensor shares memory with an older or another new one."""
    for index, (own, tensor) in enumerate(newer):
        for name, other in (*older, *newer[:index]):
            if memory.share_memory(tensor, other):
                raise case.failed(f"{own} shares memory with {name}")
