"""Nothing changes but what the schema declares: not inputs, results or incoming gradients, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...reference.tensors import version_of
from .. import memory
from ..accuracy.evaluate import weights_of
from ..cases.case import Case
from ..outcome import Failed
from ..subject import Subject
from ._choice import arguments_of, backward_lines, has_gradients, named_tensors, various_cases

ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    cases = various_cases(subject)
    backward = 0
    for case in cases:
        # Copies, so that whatever is changed is not the sample that other items are given.
        own = case.each_tensor(lambda tensor: memory.banded(tensor, 0), "opsmith.checks.memory.banded({}, 0)")
        _forward(subject, own)
        if has_gradients(subject, case):
            _backward(subject, own.requiring())
            _changed_between(subject, own.requiring())
            backward += 1
    return f"{len(cases)} calls" + (f", {backward} of them backward too" if backward else "")


def _forward(subject: Subject, case: Case) -> None:
    before = _Snapshot([tensor for _, _, tensor in named_tensors(case)])
    with torch.no_grad():
        subject.raw(case.values)
    for (name, argument, tensor), changed, version_changed in zip(named_tensors(case), *before.changes(), strict=True):
        lines = [f"before, version = {name}.clone(), {name}._version", f"op({arguments_of(case)})"]
        if argument.mutated:
            if changed and not version_changed:
                lines.append(f"assert torch.equal(before, {name}) or {name}._version > version")
                raise Failed(f"{case.name}: {name} changes, but its version stays {tensor._version}", case, lines)
        elif changed:
            lines.append(f"assert opsmith.checks.memory.same_bits([before], [{name}])")
            raise Failed(f"{case.name}: {name} was changed by the call", case, lines)
        elif version_changed:
            lines.append(f"assert {name}._version == version")
            raise Failed(f"{case.name}: {name} is written to, with its own values", case, lines)


def _backward(subject: Subject, case: Case) -> None:
    results, weights = _called(subject, case)
    held = [(name, name, tensor) for name, _, tensor in named_tensors(case)]
    held += [(f"results[{index}]", "a result", result) for index, result in enumerate(results)]
    held += [(f"weights[{index}]", "the gradient it is given", weight) for index, weight in enumerate(weights)]
    before = _Snapshot([tensor for _, _, tensor in held])
    first, second = (_gradients(case, results, weights) for _ in range(2))
    call = f"torch.autograd.grad(results, {case.leaf_tuple()}, weights, retain_graph=True, allow_unused=True)"
    lines = backward_lines(case)
    for (name, what, _), changed, version_changed in zip(held, *before.changes(), strict=True):
        if changed or version_changed:
            lines += [f"before, version = {name}.detach().clone(), {name}._version", call]
            lines.append(f"assert opsmith.checks.memory.same_bits([before], [{name}]) and {name}._version == version")
            raise Failed(f"{case.name}: backward changes {what}", case, lines)
    if not memory.same_bits(first, second) and memory.same_bits(first, _gradients(case, *_called(subject, case))):
        lines += [f"first, second = {call}, {call}", "assert opsmith.checks.memory.same_bits(first, second)"]
        raise Failed(f"{case.name}: a second backward through the same call gives different gradients", case, lines)


def _changed_between(subject: Subject, case: Case) -> None:
    """If an input changes after the forward, the backward must raise, as torch's own operators do, or not need it."""
    for name, leaf in case.leaves():
        results, weights = _called(subject, case)
        expected, before = _gradients(case, results, weights), leaf.detach().clone()
        try:
            with torch.no_grad():
                leaf.add_(1)
            found = _gradients(case, results, weights)
        except RuntimeError:
            continue
        finally:
            with torch.no_grad():
                leaf.copy_(before)
        if memory.same_bits(expected, found):
            continue
        call = f"torch.autograd.grad(results, {case.leaf_tuple()}, weights, retain_graph=True, allow_unused=True)"
        lines = [
            *backward_lines(case),
            f"expected = {call}",
            "with torch.no_grad():",
            f"    {name}.add_(1)",
            "try:",
            f"    found = {call}",
            "except RuntimeError:",
            "    found = expected",
            "assert opsmith.checks.memory.same_bits(expected, found)",
        ]
        text = f"when {name} is changed in place after the forward, the backward uses the changed values"
        raise Failed(f"{case.name}: {text} without an error: save it with save_for_backward", case, lines)


Tensors = list[torch.Tensor]


def _called(subject: Subject, case: Case) -> tuple[Tensors, Tensors]:
    """The results that have a gradient, and the gradients that are to be handed to them."""
    results = [result for result in subject.call(case.values) if result.requires_grad]
    return results, [weights_of(result) for result in results]


def _gradients(case: Case, results: Tensors, weights: Tensors) -> list[torch.Tensor | None]:
    leaves = [leaf for _, leaf in case.leaves()]
    return list(torch.autograd.grad(results, leaves, weights, retain_graph=True, allow_unused=True))


class _Snapshot:
    """Tensors as they are now."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._copies = [tensor.detach().clone() for tensor in tensors]
        self._versions = [version_of(tensor) for tensor in tensors]

    def changes(self) -> tuple[list[bool], list[bool]]:
        """Whether each one's bits have changed, and whether its version counter did."""
        bits = [not memory.same_bits([c], [t]) for c, t in zip(self._copies, self._tensors, strict=True)]
        return bits, [version_of(t) != v for t, v in zip(self._tensors, self._versions, strict=True)]
