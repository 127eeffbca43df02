"""Gradients are computed for any subset of the inputs, and when only one of several results has a gradient."""

from __future__ import annotations

from itertools import combinations

import torch

from ...reference.signature import flatten
from ..accuracy.truth import Function
from ..cases.case import Case
from ..memory import same_bits
from ..subject import Subject, listed
from ._cases import differentiable_cases
from ._compare import (
    check_match,
    failing_on_error,
    gradients_of,
    op_outputs,
    reference_truth,
    require,
    results_and_weights,
)

ON = ("cpu", "cuda", "emulated")
FEW = 4
"""Tensors of which every combination is tried. Of more: each alone, all but each, all."""


def check(subject: Subject) -> str:
    cases = differentiable_cases(subject, (torch.float32,))
    if not cases:
        raise subject.without_gradient()
    combined = sum(check_call(subject, case) for case in cases)
    return f"{combined} combinations of tensors that ask for a gradient"


def check_call(subject: Subject, case: Case) -> int:
    """How many combinations of tensors were tried."""
    combined = _check_combinations(subject, case)
    with failing_on_error(case):
        results = subject.call(case.values)
    if any(result.requires_grad for result in results):
        raise case.failed("a result requires a gradient, and no input does")
    if len(results) > 1:
        for index, result in enumerate(subject.reference(case.requiring().values)):
            if result.requires_grad:
                _check_one_result(subject, case, index)
    _check_kept_graph(subject, case.requiring())
    return combined


def _check_combinations(subject: Subject, case: Case) -> int:
    truth = reference_truth(subject, case)
    given = [place for place, tensor in enumerate(flatten(subject.arguments, case.values)) if tensor is not None]
    places = zip(given, case.named_tensors(), strict=True)
    names = {place: name for place, (name, _, tensor) in places if tensor.is_floating_point()}
    sizes = range(1, len(names) + 1) if len(names) <= FEW else sorted({1, len(names) - 1, len(names)})
    chosen = [only for size in sizes for only in combinations(names, size)]
    for only in chosen:
        marked = case.named(f"{case.name}, a gradient for {', '.join(names[place] for place in only)} alone")
        check_match(subject, marked, True, truth=truth, lines=(), only=only)
    return len(chosen)


def _check_one_result(subject: Subject, case: Case, index: int) -> None:
    """The gradients of the other results are undefined."""

    def picked(function: Function) -> Function:
        return lambda values: listed(function(values))[index]

    alone = case.named(f"{case.name}, a gradient for result {index} alone")
    truth = reference_truth(subject, case, reference=picked(subject.inline))
    require(alone, truth.beside(op_outputs(subject, alone, function=picked(subject.raw))))


def _check_kept_graph(subject: Subject, case: Case) -> None:
    """A graph that is kept gives the same gradients again."""
    with failing_on_error(case):
        results = results_and_weights(subject.call, case)
        # Clones, since the second may write into the first.
        first = [None if each is None else each.clone() for each in gradients_of(case, *results)]
        second = gradients_of(case, *results)
    if not same_bits(first, second):
        raise case.failed("backward through a kept graph gives other gradients the second time")
