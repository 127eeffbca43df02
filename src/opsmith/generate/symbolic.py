"""An op with floats as tensors, which torch.compile calls if a float changes from call to call.

torch.compile keeps a changing float as a 0-dim tensor and can pass it to its own arithmetic, but it recompiles for
every value that it must pass to an operator as a number. So there is name__symbolic(Tensor x, Tensor scale) in addition
to name(Tensor x, float scale).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..operator.family import Family
from ..reference.forms import Reference
from ..reference.signature import Kind, Signature
from ..reference.vjp import Vjp
from ..runtime.operator import Operator


def has_floats(signature: Signature) -> bool:
    return any(argument.type == "float" for argument in signature.arguments)


class SymbolicForm:
    """The second way to call a family (operator.family.SymbolicCall)."""

    def __init__(self, family: Family) -> None:
        self._signature = family.forward.signature
        symbolic = Symbolic(family.forward, f"{family.name}__symbolic")
        backward = SymbolicVjp(symbolic, f"{symbolic.name}_backward")
        self._operator = family.add_operator(
            symbolic.name, symbolic, backward=family.add_operator(backward.name, backward)
        )

    def takes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether dynamo, which is tracing this, has replaced a float argument by a symbol."""
        from torch.fx.experimental.symbolic_shapes import has_static_value  # loaded already, where dynamo is

        if "out" in kwargs:
            return False
        values = zip(self._signature.arguments, self._signature.bind_call(args, kwargs), strict=True)
        return any(argument.type == "float" and not has_static_value(value) for argument, value in values)

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        values = self._signature.bind_call(args, kwargs)
        # Arithmetic that torch.compile can follow with a symbol.
        tensors = [
            torch.zeros((), dtype=torch.float64) + value if argument.type == "float" else value
            for argument, value in zip(self._signature.arguments, values, strict=True)
        ]
        return self._operator.overload(*tensors)


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

    def ones(self, args: Sequence[Any]) -> list[Any]:
        """Any numbers: a fake depends on no value."""
        return [1.0 if i in self.floats else value for i, value in enumerate(args)]

    def run(self, *args: Any) -> Any:
        return self.of.call_arranged(self.numbers(args))

    def composite(self, *args: Any) -> Any:
        return self.of.reference.composite(*self.numbers(args))

    def fake(self, *args: Any) -> Any:
        return self.of.fake(*self.ones(args))


class SymbolicVjp(Vjp):
    """The backward of a Symbolic, by the backward of its operator."""

    of: Symbolic

    def run(self, *args: Any) -> Any:
        grads, inputs, results, flags = self._parts(args)
        return self.of.of.call_backward(list(grads), self.of.numbers(inputs), list(results), flags)

    def fake(self, *args: Any) -> Any:
        grads, inputs, results, flags = self._parts(args)
        assert self.of.of.backward is not None
        return self.of.of.backward.fake(*grads, *self.of.ones(inputs), *results, flags)

    def _parts(self, args: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], list[bool]]:
        """(gradients of the results, the forward's arguments, its results, which of the op's own tensors need one)."""
        arguments = self.of.signature.arguments
        count = len(self.of.signature.results)
        grads, inputs, results = args[:count], args[count : count + len(arguments)], args[-1 - count : -1]
        owners = [i for i, argument in enumerate(arguments) if argument.is_tensor]
        flags = [flag for i, flag in zip(owners, args[-1], strict=True) if i not in self.of.floats]
        return grads, inputs, results, flags
