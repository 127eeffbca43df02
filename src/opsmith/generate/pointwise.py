"""opsmith.pointwise: an op with kernels generated from its reference, a function of elements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kernels import GeneratedKernel
from ..operator.family import Family
from ..operator.op import Op, declare
from ..reference.forms import Plain
from ..reference.signature import Signature
from ..runtime.operator import Operator
from .batching import by_broadcasting
from .call import GeneratedCall
from .compiler import Arguments, Compiler
from .devices import DEVICES
from .emulated import Emulated
from .reference import Elementwise, ElementwiseFunctional, Pulled
from .source import example, texts
from .symbolic import SymbolicForm, has_floats
from .trace import is_static


def pointwise(name: str, mutates_args: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Op]:
    """Makes a complete operator with generated kernels from a PyTorch function of elements.

    >>> @opsmith.pointwise("mylib::scale_bias_relu")
    ... def scale_bias_relu(x: torch.Tensor, bias: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    ...     return torch.relu(x * scale + bias)

    Tensors broadcast and promote as in PyTorch. Floats and ints are kernel arguments; the function may branch on bools
    and strings. CUDA and C++ get one fused kernel each for forward and backward: the gradient of a broadcast input is
    summed inside the backward kernel, and second gradients are kernels too. Anything that is not elementwise is refused
    at declaration, with its line: use `opsmith.op` for that.

    Args:
        name: 'namespace::name', as torch.ops will know it.
        mutates_args: the tensors the function changes in place; it then returns None and calling the op returns them.
    """
    return lambda function: declare(name, function, mutates_args, "keep", PointwiseGeneration)


class PointwiseGeneration:
    """What is generated for one op (operator.family.Generation)."""

    def __init__(self, name: str, function: Callable[..., Any], signature: Signature) -> None:
        self.compiler = Compiler(name, function, signature)
        self.plain = Elementwise(self.compiler)

    def functional(self, name: str) -> ElementwiseFunctional:
        return ElementwiseFunctional(self.plain, name)

    def backwards(self, source: Plain, name: str) -> tuple[Pulled, Pulled]:
        first = Pulled(source, name, self.compiler, self.compiler.backward_arguments)
        return first, Pulled(first, f"{name}_backward", self.compiler, self.compiler.second_arguments)

    def complete(self, family: Family, kernels: bool) -> None:
        if not family.inplace and has_floats(self.plain.signature):
            family.symbolic = SymbolicForm(family)
        for operator, take, role in self._operators(family):
            if role in ("forward", "backward", "second"):
                operator.derived_vmap = functools.partial(by_broadcasting, take)
        if not kernels:
            return
        for device in DEVICES:
            for operator, take, role in self._operators(family):
                function = GeneratedCall(self.compiler, device, take, role, operator)
                arguments = operator.signature.arguments
                statics = tuple(not argument.is_tensor and is_static(argument) for argument in arguments)
                self._set_kernel(operator, device, function, role, statics)
        family.differentiable.saves_suffice = True
        family.differentiable.backward_replaced()

    def emulate(self, family: Family) -> None:
        for operator, take, role in self._operators(family):
            function = GeneratedCall(self.compiler, "cpu", take, role, operator, _emulated())
            self._set_kernel(operator, "cpu", function, role, None)
        family.differentiable.backward_replaced()

    def _operators(self, family: Family) -> list[tuple[Operator, Callable[[Sequence[Any]], Arguments], str]]:
        """Each operator that gets generated kernels, how it takes its arguments, and its role."""
        compiler = self.compiler
        assert family.backward.backward is not None
        found: list[tuple[Operator, Callable[[Sequence[Any]], Arguments], str]] = [
            (family.backward.backward, compiler.second_arguments, "second"),
            (family.backward, compiler.backward_arguments, "backward"),
            (family.differentiable, compiler.forward_arguments, "forward"),
        ]
        if family.inplace:
            found.append((family.forward, compiler.forward_arguments, "inplace"))
        elif family.out is not None:
            found.append((family.out, compiler.forward_arguments, "out"))
        return found

    def _set_kernel(
        self, operator: Operator, device: str, function: GeneratedCall, role: str, statics: tuple[bool, ...] | None
    ) -> None:
        kernel = GeneratedKernel(device, function, statics)
        if role == "backward":
            kernel.saves, kernel.passthrough = self._saves, self.compiler.handed_on
        operator.set_kernel(kernel)

    @functools.cached_property
    def _saves(self) -> dict[str, tuple[str, ...]]:
        """By dtype class: the names of what the backward kernel needs saved."""
        compiler = self.compiler
        names = [argument.name for argument in compiler.signature.tensors]
        others = [argument.name for argument in compiler.signature.arguments if not argument.is_tensor]
        return {
            label: (
                *(names[slot] for slot in sorted(saves.inputs)),
                *others,
                *(compiler.result_names[index] for index in sorted(saves.results)),
            )
            for label, saves in compiler.saves.items()
        }

    def source(self, device: str, values: Sequence[Any] | None, backward: bool, dtype: torch.dtype) -> str:
        given = example(self.compiler, dtype) if values is None else values
        return "\n".join(texts(self.compiler, device, given, backward).values())


@functools.cache
def _emulated() -> Emulated:
    return Emulated()
