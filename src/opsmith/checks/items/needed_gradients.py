"""Gradients are computed for any subset of the inputs, and when only one of several results has a gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import torch

from ...reference.signature import flatten
from ..accuracy.evaluate import evaluate, weights_of
from ..cases.case import Case
from ..memory import same_bits
from ..outcome import Failed
from ..subject import Subject, listed
from ._choice import arguments_of
from ._small import differentiable_cases
from ._truth import given, judged, matching, raising, truth_of

ON = ("cpu", "cuda", "emulated")
FEW = 4
"""Tensors of which every combination is tried. Of more: each alone, all but each, all."""


def check(subject: Subject) -> str:
    combined = 0
    cases = differentiable_cases(subject, (torch.float32,))
    if not cases:
        raise subject.without_gradient()
    for case in cases:
        combined += _each_combination(subject, case)
        _none_at_all(subject, case)
        _one_result_alone(subject, case)
        _twice(subject, case)
    return f"{combined} combinations of tensors that ask for a gradient"


def _each_combination(subject: Subject, case: Case) -> int:
    truth = truth_of(subject, case)
    places = [
        p for p, t in enumerate(flatten(subject.arguments, case.values)) if t is not None and t.is_floating_point()
    ]
    count = 0
    for chosen in _combinations(places):
        marked = _marked(case, chosen)
        line = matching(marked)
        found = given(subject, case, line=line, only=chosen)
        judged(marked, truth.beside(found), line)
        count += 1
    return count


def _combinations(places: list[int]) -> Iterator[tuple[int, ...]]:
    sizes = range(1, len(places) + 1) if len(places) <= FEW else sorted({1, len(places) - 1, len(places)})
    for size in sizes:
        yield from combinations(places, size)


def _marked(case: Case, chosen: tuple[int, ...]) -> Case:
    """With leaves for the chosen tensors only."""
    place, marked, names = 0, case, []
    for argument, value in zip(case.arguments, case.values, strict=True):
        if isinstance(value, torch.Tensor) or (argument.is_tensor and value is None):
            if place in chosen and value is not None:
                marked = marked.changed(
                    argument.name, value.detach().requires_grad_(), f"{argument.name}.detach().requires_grad_()"
                )
                names.append(argument.name)
            place += 1
        elif argument.is_tensor:
            own = [place + index in chosen for index in range(len(value))]
            if any(own):
                pairs = zip(value, own, strict=True)
                made = [each.detach().requires_grad_() if asks else each for each, asks in pairs]
                code = [f"{argument.name}[{i}]" + ".detach().requires_grad_()" * asks for i, asks in enumerate(own)]
                marked = marked.changed(argument.name, made, f"[{', '.join(code)}]")
                names += [f"{argument.name}[{index}]" for index, asks in enumerate(own) if asks]
            place += len(value)
    return marked.named(f"{case.name}, a gradient for {', '.join(names)} alone")


def _none_at_all(subject: Subject, case: Case) -> None:
    with raising(case, [case.call()]):
        results = subject.call(case.values)
    if any(result.requires_grad for result in results):
        lines = [f"result = {case.call()}", "result = result[0] if isinstance(result, (tuple, list)) else result"]
        lines.append("assert not result.requires_grad")
        raise Failed(f"{case.name}: a result requires a gradient, and no input does", case, lines)


def _one_result_alone(subject: Subject, case: Case) -> None:
    """The gradients of the others are undefined."""
    count = len(subject.reference(case.values))
    if count < 2:
        return
    for index in range(count):
        if not listed(subject.reference(case.requiring().values))[index].requires_grad:
            continue
        line = f"opsmith.checks.assert_matches(op, {arguments_of(case)}, grad_of={index})"
        alone = case.named(f"{case.name}, a gradient for result {index} alone")
        truth = truth_of(subject, case, pick=index)

        def picked(values: Sequence[Any], index: int = index) -> torch.Tensor:
            return listed(subject.raw(values))[index]

        with raising(alone, [line]):
            found = evaluate(subject.arguments, picked, case.values)
        judged(alone, truth.beside(found), line)


def _twice(subject: Subject, case: Case) -> None:
    """A graph that is kept gives the same gradients again."""
    leaves = case.requiring()
    numbers = "[torch.linspace(0.5, 1.5, each.numel()).reshape(each.shape).to(each) for each in targets]"
    again = f"torch.autograd.grad(targets, {leaves.leaf_tuple()}, weights, retain_graph=True, allow_unused=True)"
    lines = [
        f"results = {leaves.call()}",
        "results = results if isinstance(results, (tuple, list)) else [results]",
        "targets = [each for each in results if each.requires_grad]",
        f"weights = {numbers}",
        f"first = [None if each is None else each.clone() for each in {again}]",
        f"second = {again}",
        "assert opsmith.checks.memory.same_bits(first, second)",
    ]
    with raising(leaves, lines):
        targets = [result for result in subject.call(leaves.values) if result.requires_grad]
        tensors = [leaf for _, leaf in leaves.leaves()]
        weights = [weights_of(target) for target in targets]
        first = torch.autograd.grad(targets, tensors, weights, retain_graph=True, allow_unused=True)
        kept = [None if each is None else each.clone() for each in first]  # the second may write into it
        second = torch.autograd.grad(targets, tensors, weights, retain_graph=True, allow_unused=True)
    if not same_bits(kept, list(second)):
        raise Failed(f"{case.name}: backward through a kept graph gives other gradients the second time", leaves, lines)
