"""Nothing changes but what the schema declares: not inputs, results or incoming gradients, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...reference.tensors import version_of
from .. import memory
from ..cases.case import Case
from ..subject import Subject
from ._cases import has_gradients, various_cases
from ._compare import gradients_of, results_and_weights

ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    cases = various_cases(subject)
    backward = 0
    for case in cases:
        # Copies, so that the samples of other items stay as they are.
        check_call(
            subject, case.each_tensor(lambda tensor: memory.banded(tensor, 0), "opsmith.checks.memory.banded({}, 0)")
        )
        backward += has_gradients(subject, case)
    return f"{len(cases)} calls" + (f", {backward} of them backward too" if backward else "")


def check_call(subject: Subject, case: Case) -> None:
    _check_forward(subject, case)
    if has_gradients(subject, case):
        _check_backward(subject, case.requiring())
        _check_changed_between(subject, case.requiring())


def _check_forward(subject: Subject, case: Case) -> None:
    changes = _watched([tensor for _, _, tensor in case.named_tensors()])
    with torch.no_grad():
        subject.raw(case.values)
    for (name, argument, tensor), (changed, version_changed) in zip(case.named_tensors(), changes(), strict=True):
        if argument.mutated:
            if changed and not version_changed:
                raise case.failed(f"{name} changes, but its version stays {tensor._version}")
        elif changed:
            raise case.failed(f"{name} was changed by the call")
        elif version_changed:
            raise case.failed(f"{name} is written to, with its own values")


def _check_backward(subject: Subject, case: Case) -> None:
    results, weights = results_and_weights(subject.call, case)
    held = [(name, tensor) for name, _, tensor in case.named_tensors()]
    held += [("a result", result) for result in results]
    held += [("the gradient it is given", weight) for weight in weights]
    changes = _watched([tensor for _, tensor in held])
    first, second = (gradients_of(case, results, weights) for _ in range(2))
    for (name, _), changed in zip(held, changes(), strict=True):
        if any(changed):
            raise case.failed(f"backward changes {name}")
    if not memory.same_bits(first, second) and memory.same_bits(
        first, gradients_of(case, *results_and_weights(subject.call, case))
    ):
        raise case.failed("a second backward through the same call gives different gradients")


def _check_changed_between(subject: Subject, case: Case) -> None:
    """If an input changes after the forward, the backward must raise, as torch's own operators do, or not need it."""
    for name, leaf in case.leaves():
        results, weights = results_and_weights(subject.call, case)
        expected, before = gradients_of(case, results, weights), leaf.detach().clone()
        try:
            with torch.no_grad():
                leaf.add_(1)
            found = gradients_of(case, results, weights)
        except RuntimeError:
            continue
        finally:
            with torch.no_grad():
                leaf.copy_(before)
        if not memory.same_bits(expected, found):
            text = f"when {name} is changed in place after the forward, the backward uses the changed values"
            raise case.failed(f"{text} without an error: save it with save_for_backward")


def _watched(tensors: Sequence[torch.Tensor]) -> Callable[[], list[tuple[bool, bool]]]:
    """A function that says of each tensor whether its bits have changed since, and whether its version counter has."""
    before = [(tensor, tensor.detach().clone(), version_of(tensor)) for tensor in tensors]
    return lambda: [(not memory.same_bits([copy], [now]), version_of(now) != version) for now, copy, version in before]
