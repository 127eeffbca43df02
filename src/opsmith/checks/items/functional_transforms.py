"""The transforms of torch.func, also composed, give the same for the op as for the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import func

from ...operator.op import Op
from .. import values as call_values
from ..accuracy.evaluate import evaluate, in_pairs, weights_of
from ..accuracy.truth import Function, Rounding, Truth
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._cases import elements_of, generated_case, has_gradients, skip_random
from ._compare import failing_on_error, require

MATRICES = ("jacrev", "jacfwd", "hessian", "jacrev of jacfwd")
"""Transforms with a row for each element of the arguments."""
MOST_FOR_MATRICES = 1024
QUICK = ("vjp", "jacrev", "hessian", "functional_call")
"""These contain the others."""
FEW = 4
"""Elements of each floating tensor that are variables; the others are constants. A Hessian has their square."""

Vector = Callable[[torch.Tensor], torch.Tensor]
Transform = Callable[[Vector, torch.Tensor], torch.Tensor]


def check(subject: Subject) -> str:
    case = generated_case(subject, (torch.float64, torch.float32))
    skip_random(subject, case)
    if not has_gradients(subject, case):
        raise subject.without_gradient()
    return check_call(subject, case)


def check_call(subject: Subject, case: Case) -> str:
    held, refused = [], []
    elements = elements_of(case)
    for transform in TRANSFORMS if subject.full else QUICK:
        if elements > MOST_FOR_MATRICES and transform in MATRICES:
            continue
        truth = _truth(subject, case, transform)
        if truth is None:  # the reference has none
            continue
        transformed = case.named(f"{case.name}, {transform}")
        function = _transformed(subject, subject.call, transform)
        try:
            with failing_on_error(transformed):
                found = evaluate(subject.functional_arguments, function, case.values, gradients=False)
        except Failed as failed:
            # An adopted operator may have no forward-mode derivative, and raise.
            has_none = isinstance(failed.__cause__, NotImplementedError) and "forward" in str(failed.__cause__)
            if isinstance(subject.op, Op) or not has_none:
                raise
            refused.append(transform)
            continue
        require(transformed, truth.beside(found))
        held.append(transform)
    if not held:
        raise Skipped(f"it refuses {', '.join(refused)}: it has no forward-mode derivative")
    summary = ", ".join(held) + (f"; it refuses {', '.join(refused)}" if refused else "")
    too_large = f"; not {', '.join(MATRICES)}: its smallest call has {elements} elements"
    return summary + (too_large if elements > MOST_FOR_MATRICES else "")


def _truth(subject: Subject, case: Case, transform: str) -> Truth | None:
    reference = _transformed(subject, subject.reference, transform)
    try:
        return Truth(subject.functional_arguments, reference, case.values, False, Rounding(), transforms=True)
    except RuntimeError:  # NotImplementedError among them: torch has no such rule for something in the reference
        return None


def _total(function: Vector) -> Vector:
    """A weighted sum of the results; the weights have no symmetry that could hide a fault."""

    def total(variables: torch.Tensor) -> torch.Tensor:
        found = function(variables)
        return (found * weights_of(found)).sum()

    return total


def _vjp(function: Vector, variables: torch.Tensor) -> torch.Tensor:
    found, pull, *_ = func.vjp(function, variables)
    return pull(weights_of(found))[0]  # type: ignore[no-any-return]


def _jvp(function: Vector, variables: torch.Tensor) -> torch.Tensor:
    return func.jvp(function, (variables,), (weights_of(variables),))[1]  # type: ignore[no-any-return]


def _functional_call(function: Vector, variables: torch.Tensor) -> torch.Tensor:
    module: Any = torch.nn.Module()
    module.variables = torch.nn.Parameter(torch.zeros_like(variables))
    module.forward = lambda: function(module.variables)

    def called(given: torch.Tensor) -> torch.Tensor:
        return func.functional_call(module, {"variables": given}, ())  # type: ignore[no-any-return]

    return func.grad(_total(called))(variables)  # type: ignore[no-any-return]


TRANSFORMS: dict[str, Transform] = {
    "grad": lambda function, variables: func.grad(_total(function))(variables),
    "vjp": _vjp,
    "jvp": _jvp,
    "jacrev": lambda function, variables: func.jacrev(function)(variables),
    "jacfwd": lambda function, variables: func.jacfwd(function)(variables),
    "jvp of grad": lambda function, variables: _jvp(func.grad(_total(function)), variables),
    "grad of grad": lambda function, variables: func.grad(_total(func.grad(_total(function))))(variables),
    "hessian": lambda function, variables: func.hessian(_total(function))(variables),
    "jacrev of jacfwd": lambda function, variables: func.jacrev(func.jacfwd(_total(function)))(variables),
    "functional_call": _functional_call,
    "linearize": lambda function, variables: func.linearize(function, variables)[1](weights_of(variables)),
}


def _transformed(subject: Subject, function: Function, transform: str) -> Function:
    arguments = subject.functional_arguments

    def called(values: Sequence[Any]) -> list[torch.Tensor]:
        leaves = call_values.floating(arguments, values)
        parts = [leaf.detach().reshape(-1)[:FEW] for leaf in leaves]
        dtype = parts[0].dtype

        def vector(variables: torch.Tensor) -> torch.Tensor:
            pieces = variables.split([part.numel() for part in parts])
            filled = call_values.with_floating(arguments, values, map(_filled, leaves, pieces))
            results = [in_pairs(each) for each in call_values.listed(function(filled))]
            return torch.cat([each.reshape(-1).to(dtype) for each in results if each.is_floating_point()])

        variables = torch.cat([part.to(dtype) for part in parts])
        return [TRANSFORMS[transform](vector, variables)]

    return called


def _filled(leaf: torch.Tensor, piece: torch.Tensor) -> torch.Tensor:
    """A tensor with its first elements replaced."""
    rest = leaf.detach().reshape(-1)[piece.numel() :]
    return torch.cat([piece.to(leaf.dtype), rest]).reshape(leaf.shape)
