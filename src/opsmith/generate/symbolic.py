"""An op whose floats are tensors: what torch.compile calls where a float changes from call to call.

torch.compile keeps a changing float as a tensor of no dimension and can hand it to its own arithmetic, but it compiles
anew for every value that it must hand to an operator as a number. So beside name(Tensor x, float scale) stands
name__symbolic(Tensor x, Tensor scale).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..reference.forms import Reference
from ..reference.signature import Kind, Signature
from ..reference.vjp import Vjp
from ..runtime.operator import Operator


def has_floats(signature: Signature) -> bool:
    return any(argument.type == "float" for argument in signature.arguments)


def is_symbolic(signature: Signature, values: Sequence[Any]) -> bool:
    """Whether dynamo, which is tracing this, has made a symbol of a float among the arguments."""
    from torch.fx.experimental.symbolic_shapes import has_static_value  # in the process already, where dynamo is

    for argument, value in zip(signature.arguments, values, strict=True):
        if argument.type == "float" and not has_static_value(value):
            return True
    return False


def with_tensors(signature: Signature, values: Sequence[Any]) -> list[Any]:
    """The arguments with floats as tensors, by arithmetic that torch.compile can follow with a symbol."""
    return [
        torch.zeros((), dtype=torch.float64) + value if argument.type == "float" else value
        for argument, value in zip(signature.arguments, values, strict=True)
    ]


class Symbolic(Reference):
    """The operator `of` with floats as tensors."""

    def __init__(self, of: Operator, name: str) -> None:
        self.of = of
        self.name = name
        self.floats = [i for i, argument in enumerate(of.signature.arguments) if argument.type == "float"]
        arguments = tuple(
            replace(argument.positional(), type="Tensor", kind=Kind.TENSOR)
            if i in self.floats
            else argument.positional()
            for i, argument in enumerate(of.signature.arguments)
        )
        self.signature = Signature(arguments, of.signature.results)

    def numbers(self, args: Sequence[Any]) -> list[Any]:
        return [value.item() if i in self.floats else value for i, value in enumerate(args)]

    def run(self, *args: Any) -> Any:
        return self.of.call_arranged(self.numbers(args))

    def composite(self, *args: Any) -> Any:
        return self.of.reference.composite(*self.numbers(args))

    def fake(self, *args: Any) -> Any:
        return self.of.fake(*[1.0 if i in self.floats else value for i, value in enumerate(args)])


class SymbolicVjp(Vjp):
    """The backward of a Symbolic, by the backward of its operator."""

    of: Symbolic

    def run(self, *args: Any) -> Any:
        return self._called(args, self.of.numbers)

    def fake(self, *args: Any) -> Any:
        grads, inputs, results, flags = self._taken(args)
        ones = [1.0 if i in self.of.floats else value for i, value in enumerate(inputs)]
        assert self.of.of.backward is not None
        return self.of.of.backward.fake(*grads, *ones, *results, flags)

    def _called(self, args: Sequence[Any], numbers: Any) -> Any:
        grads, inputs, results, flags = self._taken(args)
        return self.of.of.call_backward(list(grads), numbers(inputs), list(results), flags)

    def _taken(self, args: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], list[bool]]:
        """(gradients of the results, the forward's arguments, its results, which of the op's own tensors need one)."""
        arguments = self.of.signature.arguments
        count = len(self.of.signature.results)
        grads, inputs, results = args[:count], args[count : count + len(arguments)], args[-1 - count : -1]
        owners = [i for i, argument in enumerate(arguments) if argument.is_tensor]
        flags = [flag for i, flag in zip(owners, args[-1], strict=True) if i not in self.of.floats]
        return grads, inputs, results, flags
