"""Family: the operators behind one choice of kernels, connected to each other.

    a functional op    name            its backward   name_backward      its out= form  name_out
    an in-place op     name            the functional form it differentiates through  name_functional, name_backward

The op itself is a family; each named kernel is another. So a choice made by `using` is part of the recorded, compiled
or exported graph, and applies to its backward too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.compiler import is_compiling

from ..errors import GradientTakenError, InPlaceGradientError, OutArgumentError, OutGradientError, SharedMemoryError
from ..kernels import Kernel, PythonKernel
from ..reference.forms import Functional, Out, Plain, Reference
from ..reference.signature import Signature
from ..reference.tensors import overlap
from ..reference.vjp import Vjp
from ..runtime.execution import as_list
from ..runtime.operator import Operator
from .written import Registration, backward_kernel, forward_kernel, functional_kernel


class Generation(Protocol):
    """What is generated from one op's reference. An op has one, or none; everything else about the op is the same."""

    @property
    def plain(self) -> Plain:
        """The reference, with the layout rule that generated kernels follow."""

    def functional(self, name: str) -> Plain:
        """The reference of an in-place op as a function that returns new tensors."""

    def backwards(self, source: Plain, name: str) -> tuple[Reference, Reference]:
        """The references of the first and the second backward operator."""

    def complete(self, family: Family, kernels: bool) -> None:
        """Adds to a family whose operators exist what only a generator can derive, and generated kernels if wanted."""

    def emulate(self, family: Family) -> None:
        """Gives the family's CPU operators the generated CUDA kernels, run by the emulator."""

    def source(self, device: str, values: Sequence[Any] | None, backward: bool, dtype: torch.dtype) -> str:
        """The generated source for a call with these arguments; None for contiguous tensors of one shape."""


Generator = Callable[[str, Callable[..., Any], Signature], Generation]
"""(op name, reference, signature) -> Generation."""


class SymbolicCall(Protocol):
    """A second way to call a family while torch.compile traces it with floats that are symbols."""

    def takes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool: ...

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any: ...


class Family:
    def __init__(
        self,
        name: str,
        plain: Plain,
        autocast: str,
        generation: Generation | None = None,
        generated_kernels: bool = True,
    ) -> None:
        """`generated_kernels`: with the kernels of the op's generation, if it has one."""
        self.name = name
        self.inplace = bool(plain.signature.mutated)
        self.given: dict[tuple[str, str], Registration] = {}  # by direction and device
        self.functional: Operator | None = None
        self.out: Operator | None = None
        self.symbolic: SymbolicCall | None = None
        self._operators: list[Operator] = []
        try:
            self._make_operators(plain, generation)
            if generation is not None:
                generation.complete(self, generated_kernels)
        except Exception:
            self.close()  # A name that is taken must not leave half an op in the dispatcher.
            raise
        for device in ("cpu", "cuda") if autocast != "keep" else ():
            self.set_autocast(device, autocast)

    def _make_operators(self, plain: Plain, generation: Generation | None) -> None:
        name, source = self.name, plain
        if self.inplace:
            functional = f"{name}_functional"
            source = Functional(plain, functional) if generation is None else generation.functional(functional)
        self.backward = self._make_backward(source, generation)
        if self.inplace:
            self.functional = self.add_operator(source.name, source, backward=self.backward)
            self.forward = self.add_operator(name, plain, refusal=InPlaceGradientError)
            return
        self.forward = forward = self.add_operator(name, plain, backward=self.backward)
        if not plain.signature.returns_list:
            out = Out(plain, lambda *args: forward.call_arranged(args), f"{name}_out")
            self.out = self.add_operator(out.name, out, refusal=OutGradientError)

    def _make_backward(self, source: Plain, generation: Generation | None) -> Operator:
        name = f"{self.name}_backward"
        if generation is not None:
            first, second = generation.backwards(source, name)
            return self.add_operator(name, first, backward=self.add_operator(second.name, second))
        signature = source.signature
        inert = frozenset(signature.result_names) - {argument.name for argument in signature.arguments}
        return self.add_operator(name, Vjp(source, name), inert=inert)

    def add_operator(self, name: str, reference: Reference, **parts: Any) -> Operator:
        """Registers one more operator, which is closed with the family."""
        self._operators.append(Operator(name, reference, **parts))
        return self._operators[-1]

    @property
    def differentiable(self) -> Operator:
        """The operator whose gradient is recorded."""
        return self.functional or self.forward

    def close(self) -> None:
        for operator in self._operators:
            operator.close()

    # --- calling ----------------------------------------------------------------------------------------------

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Any call: keywords, out=, in place, traced. Op calls the operator directly where none of that applies."""
        if self.symbolic is not None and is_compiling() and self.symbolic.takes(args, kwargs):
            return self.symbolic(args, kwargs)
        if self.inplace:
            return self._call_inplace(args, kwargs)
        if "out" in kwargs:
            return self._call_out(args, kwargs)
        return self.forward.overload(*args, **kwargs)

    def _call_inplace(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        signature = self.forward.signature
        values = signature.bind_call(args, kwargs)
        changed = signature.changed(values)
        tensors = signature.flatten(values)
        if len(tensors) > 1 and not is_compiling():
            refuse_overlap(self.name, signature, values)
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            assert self.functional is not None
            copies = [
                value.clone() if argument.mutated else value
                for argument, value in zip(signature.arguments, values, strict=True)
            ]
            results = self.functional.call_arranged(copies)
            for tensor, new in zip(as_list(changed), as_list(results), strict=True):
                tensor.copy_(new)
        else:
            self.forward.overload(*args, **kwargs)
        return changed

    def _call_out(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = kwargs["out"]
        rest = {key: value for key, value in kwargs.items() if key != "out"}
        if out is None:
            return self.forward.overload(*args, **rest)
        if self.out is None:
            raise OutArgumentError(
                self.name, "it returns a list of tensors, for which there is no out= form. Leave it out"
            )
        outs = out if isinstance(out, (tuple, list)) else (out,)
        names = [argument.name for argument in self.out.signature.mutated]
        if len(outs) != len(names):
            raise OutArgumentError(
                self.name, f"out= takes one tensor for each result, {len(names)} in all, not {len(outs)}"
            )
        self.out.overload(*args, **rest, **dict(zip(names, outs, strict=True)))
        return out

    # --- kernels ----------------------------------------------------------------------------------------------

    def set_autocast(self, device: str, policy: str | torch.dtype) -> None:
        for operator in (self.forward, self.functional, self.out):
            if operator is not None:
                operator.set_autocast(device, policy)

    def set(self, given: Registration) -> None:
        """Uses a kernel that the author registered."""
        if given.direction == "forward":
            kernel = forward_kernel(given, self.forward.signature)
            _set(self.forward, kernel)
            if self.functional is not None:
                _set(self.functional, functional_kernel(kernel, self.forward.signature))
        else:
            self._set_backward(given)
        self.given[given.direction, given.device] = given

    def _set_backward(self, given: Registration) -> None:
        if self.differentiable.written_gradient is not None:
            raise GradientTakenError(self.name, method="register_autograd")
        kernel = backward_kernel(given, self.name, self.differentiable.signature, self.backward)
        if self.backward.backward is None:
            second = f"{self.name}_backward_backward"
            self.backward.set_backward(self.add_operator(second, Vjp(self.backward.reference, second)))
        _set(self.backward, kernel)
        self.differentiable.backward_replaced()


def _set(operator: Operator, kernel: Kernel) -> None:
    operator.set_kernel(kernel)
    if isinstance(kernel, PythonKernel) and kernel.traced is not None:
        from .inline_triton import show_to_compile

        show_to_compile(operator)


def refuse_overlap(name: str, signature: Signature, values: Sequence[Any]) -> None:
    """An op that changes a tensor must not get the same memory in another argument: the content of that argument would
    depend on how far the op has progressed, and on whether a gradient is recorded."""
    tensors = signature.named_tensors(values)
    for index, (argument, tensor) in enumerate(tensors):
        for other, second in tensors[:index]:
            if (argument.mutated or other.mutated) and tensor is not None and second is not None:
                if overlap(tensor, second):
                    raise SharedMemoryError(name, other.name, argument.name)
