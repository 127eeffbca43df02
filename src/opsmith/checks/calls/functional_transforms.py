"""torch.func transforms of a call: of the op, compared with those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.adopted import Adopted
from ...reference.signature import Argument
from .. import values as call_values
from ..accuracy.evaluate import evaluate, in_pairs, weights_of
from ..accuracy.truth import Function, Rounding, Truth, assert_all
from ..subject import Subject

if TYPE_CHECKING:
    from ...operator.op import Op

func = torch.func
FEW = 4
"""Elements of each floating tensor that are variables; the others are constants. A Hessian has their square."""

Vector = Callable[[torch.Tensor], torch.Tensor]
Transform = Callable[[Vector, torch.Tensor], torch.Tensor]


def assert_transform_matches(op: Op | Adopted, transform: str, *args: Any, **kwargs: Any) -> None:
    """Raises AssertionError unless a transform of torch.func gives for the op what it gives for the reference, within
    rounding error. The call is a function of one vector: the first elements of each floating tensor. `transform` is
    one of TRANSFORMS."""
    values = op.signature.bind_call(args, kwargs)
    subject = Subject(op)
    found = truth_of(subject, values, transform).beside(given(subject, values, transform))
    assert_all(found, f"{transform} of {op.name} is not that of its reference")


def truth_of(subject: Subject, values: Sequence[Any], transform: str) -> Truth:
    reference = _transformed(subject.functional_arguments, subject.reference, transform)
    return Truth(subject.functional_arguments, reference, values, False, Rounding(), transforms=True)


def given(subject: Subject, values: Sequence[Any], transform: str) -> list[tuple[str, torch.Tensor | None]]:
    arguments = subject.functional_arguments
    return evaluate(arguments, _transformed(arguments, subject.call, transform), values, gradients=False)


# --- The transforms -----------------------------------------------------------------------------------------------


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


def _linearized(function: Vector, variables: torch.Tensor) -> torch.Tensor:
    return func.linearize(function, variables)[1](weights_of(variables))  # type: ignore[no-any-return]


class _Holder(torch.nn.Module):
    def __init__(self, function: Vector, variables: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.variables = torch.nn.Parameter(torch.zeros_like(variables))

    def forward(self) -> torch.Tensor:
        return self.function(self.variables)


def _functional_call(function: Vector, variables: torch.Tensor) -> torch.Tensor:
    module = _Holder(function, variables)

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
    "linearize": _linearized,
}


# --- A call as a function of one vector ---------------------------------------------------------------------------


def _transformed(arguments: Sequence[Argument], function: Function, transform: str) -> Function:
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
