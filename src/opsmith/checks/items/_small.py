"""Small calls in float64, for checks that go through single elements or make many calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError

from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import doubled, patterns_of
from ..outcome import Failed
from ..subject import SMALL, Subject
from ._choice import deterministic
from ._truth import raising

Fit = Callable[[Subject, Case], bool]
PLACES = 3
"""At which a function must fail before its gradient is said to be wrong, though the reference's is the same."""


def probe(subject: Subject, most: int, least: int = 2, fit: Fit = Subject.differentiates) -> Case | None:
    """A call with finite numbers whose gradients can be asked for, of at most `most` elements in all: the largest of
    the samples, else the first one cut down. None where no such call is taken."""
    cases = [wide for case in subject.cases(torch.float64, most) if (wide := _in_double(subject, case)) is not None]
    least = min([least, *(_count(case) for case in cases if case.has_elements)])
    found = [case for case in cases if _is_fit(subject, case, most, least, fit)]
    if found:
        return max(found, key=_count)
    for pattern in patterns_of(subject, torch.float64):
        sizes = [
            size if number in pattern.frozen or group.is_constant else min(size, 3)
            for number, (group, size) in enumerate(zip(pattern.groups, pattern.sizes_of(pattern.base), strict=True))
        ]
        case = _in_double(subject, pattern.case(sizes, seed=subject.seed, name="a call cut down to 3 each way"))
        if case is None or _count(case) > most or not taken(subject, case):
            continue
        if _is_fit(subject, case, most, least, fit):
            return case
    return None


def checked(subject: Subject, case: Case, check: Callable[..., bool], line: str) -> str:
    """gradcheck, or gradgradcheck, of the op as a function of the case's leaves; or why there is none. Beside a kink no
    function passes: where the reference fails too, both are tried a little farther on."""

    def passes(run: Callable[[Sequence[Any]], list[torch.Tensor]], leaves: Sequence[torch.Tensor]) -> bool:
        def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(each for each in run(case.replaced(tensors)) if each.requires_grad)

        # That two calls differ is another item's business.
        return check(function, leaves, nondet_tol=float("inf"), raise_exception=run == subject.call)

    name = line.partition("(")[0].rpartition(".")[2]
    if subject.loses_digits(case):
        return f"no {name}: its reference computes in float32 what it is given in float64"
    for place in range(PLACES):
        leaves = [(leaf.detach() * (1 + place / 16)).requires_grad_() for _, leaf in case.leaves()]
        with raising(case, [line]):
            try:
                passes(subject.call, leaves)
                return ""
            except GradcheckError as error:
                message = f"{case.name}: {name}: {' '.join(str(error).split())[:300]}"
                if passes(subject.reference, leaves):
                    raise Failed(message, case, [line]) from None
    raise Failed(f"{message}; the reference's own gradient is not its derivative", case, [line])


def differentiable_cases(subject: Subject, dtypes: Sequence[torch.dtype], most: int = 4096) -> list[Case]:
    """In each dtype a sample or two whose gradients can be asked for: calls of different ranks, none empty."""
    found: dict[tuple[torch.dtype, tuple[int, ...]], Case] = {}
    for dtype in dtypes:
        for case in subject.cases(dtype, most):
            ranks = dtype, tuple(tensor.ndim for tensor in case.every_tensor())
            if ranks in found or not _is_fit(subject, case, SMALL, 1):
                continue
            found[ranks] = case
            if not subject.full and sum(key[0] is dtype for key in found) == 2:
                break
    return list(found.values())


def _in_double(subject: Subject, case: Case) -> Case | None:
    """The case in float64, since samples may ignore the dtype, and finite differences in float32 give no gradient. None
    if the reference does not accept float64."""
    if all(tensor is doubled(tensor) for tensor in case.every_tensor()):
        return case
    wide = case.each_tensor(doubled, "opsmith.checks.cases.patterns.doubled({})")
    return wide if taken(subject, wide) else None


def _is_fit(subject: Subject, case: Case, most: int, least: int, fit: Fit = Subject.differentiates) -> bool:
    tensors = case.every_tensor()
    if not (least <= _count(case) <= most) or not all(t.numel() and bool(t.isfinite().all()) for t in tensors):
        return False
    deterministic(subject, case)
    results = subject.reference(case.values)  # of finite numbers too, a root or a logarithm may be none
    if not all(bool(result.isfinite().all()) for result in results if result.is_floating_point()):
        return False
    return fit(subject, case)


def _count(case: Case) -> int:
    return sum(tensor.numel() for tensor in case.every_tensor())
