"""A call's second gradients and tangents as functions of the op's arguments and of the incoming gradients or tangents,
so that their results can be compared; and torch's gradcheck and gradgradcheck, on small calls in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.gradcheck import GradcheckError

from ...reference.signature import Argument, Kind
from .. import values as call_values
from ..accuracy.evaluate import evaluate, in_pairs, weights_of
from ..accuracy.truth import Comparison, Function, Rounding, Truth
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import doubled, patterns_of
from ..subject import Subject
from ._cases import capped_sizes, elements_of, is_smooth
from ._compare import failing_on_error

Derived = Callable[[Function, Sequence[Any]], list[torch.Tensor]]


@dataclass(frozen=True)
class Form:
    """`derived` turns the op, or its reference, into the function to compare. `names` are those of its results."""

    subject: Subject
    arguments: tuple[Argument, ...]
    values: tuple[Any, ...]
    derived: Derived
    names: tuple[str, ...]
    gradients: bool

    def of(self, function: Function) -> list[tuple[str, torch.Tensor | None]]:
        return evaluate(
            self.arguments, lambda values: self.derived(function, values), self.values, gradients=self.gradients
        )

    def truth(self) -> Truth:
        rounding = Rounding(pointwise=self.subject.elementwise)

        def reference(values: Sequence[Any]) -> list[torch.Tensor]:
            return self.derived(self.subject.reference, values)

        return Truth(self.arguments, reference, self.values, self.gradients, rounding, transforms=True)

    def renamed(self, found: Sequence[Comparison]) -> list[Comparison]:
        """Named after the op's arguments and results."""
        return [replace(each, what=self._name(each.what)) for each in found]

    def _name(self, what: str) -> str:
        return self.names[int(what.removeprefix("result") or 0)] if what.startswith("result") else f"second {what}"


def second_gradients(subject: Subject, case: Case) -> Form:
    """First gradients, as a function of the arguments and of the incoming gradients, which have no symmetry."""
    leaves = case.requiring()
    results = [in_pairs(result) for result in subject.reference(leaves.values) if result.requires_grad]
    grads = tuple(weights_of(result) for result in results)
    arguments = _with(subject, [f"grad_{index}" for index in range(len(grads))])
    count = len(subject.arguments)

    def derived(function: Function, values: Sequence[Any]) -> list[torch.Tensor]:
        own = call_values.floating(arguments[:count], values[:count])
        targets = [in_pairs(result) for result in call_values.listed(function(values[:count])) if result.requires_grad]
        found = torch.autograd.grad(targets, own, values[count:], create_graph=True, allow_unused=True)
        return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(own, found, strict=True)]

    names = tuple(f"gradient of {name}" for name, _ in leaves.leaves())
    return Form(subject, arguments, (*case.values, *grads), derived, names, gradients=True)


def has_second_gradients(subject: Subject, case: Case) -> bool:
    """Whether torch can differentiate the gradients of the reference: some of its own operators' it cannot."""
    try:
        second_gradients(subject, case).of(subject.reference)
    except RuntimeError:  # NotImplementedError among them
        return False
    return True


OfFloating = Callable[..., tuple[torch.Tensor, ...]]
Method = Callable[[OfFloating, list[torch.Tensor], list[torch.Tensor]], list[torch.Tensor]]


def tangents(subject: Subject, case: Case, by: str = "jvp") -> Form:
    """The tangents of the floating results, given one for each floating input: by torch.func.jvp, by the 'dual' numbers
    of torch.autograd.forward_ad, or by 'reverse' mode alone."""
    method = METHODS[by]
    own = call_values.floating(subject.arguments, case.values)
    given = tuple(weights_of(tensor, draw=1 + index) for index, tensor in enumerate(own))
    arguments = _with(subject, [f"tangent_{index}" for index in range(len(given))])
    count = len(subject.arguments)

    def derived(function: Function, values: Sequence[Any]) -> list[torch.Tensor]:
        primals, directions = call_values.floating(arguments[:count], values[:count]), list(values[count:])

        def of_floating(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            filled = call_values.with_floating(arguments[:count], values[:count], tensors)
            returned = call_values.listed(function(filled))
            return tuple(result for result in map(in_pairs, returned) if result.is_floating_point())

        return method(of_floating, primals, directions)

    results = [result for result in map(in_pairs, subject.reference(case.values)) if result.is_floating_point()]
    names = tuple("tangent" if len(results) == 1 else f"tangent of result {index}" for index in range(len(results)))
    return Form(subject, arguments, (*case.values, *given), derived, names, gradients=False)


def tangents_of_reference(subject: Subject, case: Case) -> Truth:
    """By forward mode, or by reverse mode where torch lacks a forward rule for an operator in it."""
    try:
        return tangents(subject, case).truth()
    except NotImplementedError:
        return tangents(subject, case, "reverse").truth()


def _by_jvp(function: OfFloating, primals: list[torch.Tensor], directions: list[torch.Tensor]) -> list[torch.Tensor]:
    results, found, *_ = torch.func.jvp(function, tuple(primals), tuple(directions))
    return list(map(_as_wide, found, results))


def _by_dual_numbers(
    function: OfFloating, primals: list[torch.Tensor], directions: list[torch.Tensor]
) -> list[torch.Tensor]:
    with forward_ad.dual_level():
        pairs = zip(primals, directions, strict=True)
        results = function(*[forward_ad.make_dual(primal, direction) for primal, direction in pairs])
        unpacked = [forward_ad.unpack_dual(result) for result in results]
        return [
            torch.zeros_like(primal) if tangent is None else _as_wide(tangent.clone(), primal)
            for primal, tangent in unpacked
        ]


def _as_wide(tangent: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """torch gives the product of a zero-dimensional float32 tensor and a number a float64 tangent."""
    return tangent.to(result.dtype)


def _by_reverse(
    function: OfFloating, primals: list[torch.Tensor], directions: list[torch.Tensor]
) -> list[torch.Tensor]:
    """A vjp is linear in the incoming gradient, and the vjp of that is the jvp."""
    leaves = [primal.detach().requires_grad_() for primal in primals]
    results = function(*leaves)
    weights = [torch.zeros_like(result).requires_grad_() for result in results]
    targets = [(result, weight) for result, weight in zip(results, weights, strict=True) if result.requires_grad]
    pulled = torch.autograd.grad(
        [r for r, _ in targets], leaves, [w for _, w in targets], create_graph=True, allow_unused=True
    )
    pairs = [(grad, direction) for grad, direction in zip(pulled, directions, strict=True) if grad is not None]
    found = torch.autograd.grad([grad for grad, _ in pairs], weights, [d for _, d in pairs], allow_unused=True)
    return [torch.zeros_like(r) if each is None else each for r, each in zip(results, found, strict=True)]


METHODS: dict[str, Method] = {"jvp": _by_jvp, "dual": _by_dual_numbers, "reverse": _by_reverse}


def _with(subject: Subject, names: Sequence[str]) -> tuple[Argument, ...]:
    """The op's arguments and further tensors; none is changed in place."""
    own = subject.functional_arguments
    return (*own, *(Argument(name, "Tensor", Kind.TENSOR) for name in names))


# --- Finite differences -----------------------------------------------------------------------------------------------

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
                message = f"{name}: {' '.join(str(error).split())[:300]}"
                if passes(subject.reference, leaves):
                    raise case.failed(message, [line]) from None
    raise case.failed(f"{message}; the reference's own gradient is not its derivative", [line])


def _in_double(subject: Subject, case: Case) -> Case | None:
    """The case in float64, since samples may ignore the dtype, and finite differences in float32 give no gradient. None
    if the reference does not accept float64."""
    if all(tensor is doubled(tensor) for tensor in case.every_tensor()):
        return case
    wide = case.each_tensor(doubled, "opsmith.checks.cases.patterns.doubled({})")
    return wide if taken(subject, wide) else None
