"""torch's gradcheck and gradgradcheck, on small calls in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError

from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import doubled, patterns_of
from ..outcome import Failed
from ..subject import Subject
from ._cases import capped_sizes, elements_of, is_smooth
from ._compare import failing_on_error

Fit = Callable[[Subject, Case], bool]
PLACES = 3
"""At which a function must fail before its gradient counts as wrong, although the reference's is the same."""


def probe(subject: Subject, most: int, fit: Fit = Subject.differentiates) -> Case | None:
    """A differentiable call in float64 with at most `most` elements in all: the largest of the samples, else the first
    one cut down. None if the reference accepts no such call."""

    def fits(case: Case) -> bool:
        return least <= elements_of(case) <= most and is_smooth(subject, case) and fit(subject, case)

    cases = [wide for case in subject.cases(torch.float64, most) if (wide := _in_double(subject, case)) is not None]
    least = min([2, *(elements_of(case) for case in cases if case.has_elements)])
    if found := [case for case in cases if fits(case)]:
        return max(found, key=elements_of)
    for pattern in patterns_of(subject, torch.float64):
        name = "a call cut down to 3 each way"
        case = _in_double(subject, pattern.case(capped_sizes(pattern, 3), seed=subject.seed, name=name))
        if case is not None and elements_of(case) <= most and taken(subject, case) and fits(case):
            return case
    return None


def check_derivative(subject: Subject, case: Case, check: Callable[..., bool], line: str) -> str:
    """gradcheck, or gradgradcheck, of the op as a function of the case's leaves. Returns why it was not run, or ''. At
    a kink no function passes: if the reference fails too, both are tried at inputs a little away."""

    def passes(run: Callable[[Sequence[Any]], list[torch.Tensor]], leaves: Sequence[torch.Tensor]) -> bool:
        def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(each for each in run(case.replaced(tensors)) if each.requires_grad)

        # The item `determinism` checks whether two calls differ.
        return check(function, leaves, nondet_tol=float("inf"), raise_exception=run == subject.call)

    name = line.partition("(")[0].rpartition(".")[2]
    if subject.loses_digits(case):
        return f"no {name}: its reference computes in float32 what it is given in float64"
    for place in range(PLACES):
        leaves = [(leaf.detach() * (1 + place / 16)).requires_grad_() for _, leaf in case.leaves()]
        with failing_on_error(case, [line]):
            try:
                passes(subject.call, leaves)
                return ""
            except GradcheckError as error:
                message = f"{case.name}: {name}: {' '.join(str(error).split())[:300]}"
                if passes(subject.reference, leaves):
                    raise Failed(message, case, [line]) from None
    raise Failed(f"{message}; the reference's own gradient is not its derivative", case, [line])


def _in_double(subject: Subject, case: Case) -> Case | None:
    """The case in float64, since samples may ignore the dtype, and finite differences in float32 give no gradient. None
    if the reference does not accept float64."""
    if all(tensor is doubled(tensor) for tensor in case.every_tensor()):
        return case
    wide = case.each_tensor(doubled, "opsmith.checks.cases.patterns.doubled({})")
    return wide if taken(subject, wide) else None
