"""Variant: the operators behind one choice of kernels, wired to each other.

    a functional op    name            its backward   name_backward      its out= form  name_out
    an in-place op     name            the functional form it differentiates through  name_functional, name_backward

The op itself is a variant; each kernel with a name of its own is another, so that a choice made by `using` is part of
the recorded, compiled or exported graph and holds for its backward.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.compiler import is_compiling

from ..errors import (
    InPlaceGradientError,
    KernelResultError,
    OutGradientError,
    RegistrationError,
    SharedMemoryError,
    described,
)
from ..kernels import Kernel, NativeFunction, languages
from ..reference.forms import Functional, Out, Plain, Reference
from ..reference.signature import Argument, Kind, Signature, flatten
from ..reference.tensors import contiguous_clone, overlap
from ..reference.vjp import Vjp
from ..runtime.operator import Operator


@dataclass(frozen=True, eq=False)
class Registered:
    """A kernel as its author gave it."""

    direction: str  # "forward" or "backward"
    device: str
    function: Callable[..., Any] | NativeFunction
    layout: str
    name: str
    saves: Sequence[str] | None = None
    inline: bool = False

    @cached_property
    def emulated(self) -> Registered | None:
        """The same kernel for CPU tensors, where it is one for the GPU that can be emulated."""
        function = languages.emulated(self.function) if self.device == "cuda" else None
        return None if function is None else replace(self, device="cpu", function=function, inline=False)


class Variant:
    def __init__(self, name: str, plain: Plain, autocast: str) -> None:
        self.name = name
        self.inplace = bool(plain.signature.mutated)
        self._made: list[Operator] = []
        self.given: dict[tuple[str, str], Registered] = {}  # by direction and device: what an author registered
        try:
            self._make(name, plain)
        except Exception:
            self.close()  # A name that is taken must not leave half an op in the dispatcher.
            raise
        for device in ("cpu", "cuda") if autocast != "keep" else ():
            self.set_autocast(device, autocast)

    def _make(self, name: str, plain: Plain) -> None:
        self.functional: Operator | None = None
        self.out: Operator | None = None
        source = Functional(plain, f"{name}_functional") if self.inplace else plain
        inert = frozenset(source.signature.result_names) - {argument.name for argument in source.signature.arguments}
        self.backward = self._operator(f"{name}_backward", Vjp(source, f"{name}_backward"), inert=inert)
        if self.inplace:
            self.functional = self._operator(source.name, source, backward=self.backward)
            self.forward = self._operator(name, plain, refusal=InPlaceGradientError)
            return
        self.forward = self._operator(name, plain, backward=self.backward)
        if not plain.signature.returns_list:
            forward = self.forward
            out = Out(plain, lambda *args: forward.call_arranged(args), f"{name}_out")
            self.out = self._operator(f"{name}_out", out, refusal=OutGradientError)

    def _operator(self, name: str, reference: Reference, **parts: Any) -> Operator:
        self._made.append(Operator(name, reference, **parts))
        return self._made[-1]

    @property
    def differentiable(self) -> Operator:
        """The operator whose gradient is recorded."""
        return self.functional or self.forward

    def close(self) -> None:
        for operator in self._made:
            operator.close()

    # --- calling ----------------------------------------------------------------------------------------------

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The call with everything that may be asked of it. Op takes a shorter road where nothing is."""
        if self.inplace:
            return self._call_inplace(args, kwargs)
        if "out" in kwargs:
            return self._call_out(args, kwargs)
        return self.forward.overload(*args, **kwargs)

    def _call_inplace(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        signature = self.forward.signature
        values = signature.bind_call(args, kwargs)
        mutated = [value for argument, value in zip(signature.arguments, values, strict=True) if argument.mutated]
        tensors = flatten(signature.arguments, values)
        if len(tensors) > 1 and not is_compiling():
            _refuse_overlap(self.name, signature, values)
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            assert self.functional is not None
            copies = [
                value.clone() if argument.mutated else value
                for argument, value in zip(signature.arguments, values, strict=True)
            ]
            changed = self.functional.call_arranged(copies)
            for tensor, new in zip(mutated, [changed] if len(mutated) == 1 else changed, strict=True):
                tensor.copy_(new)
        else:
            self.forward.overload(*args, **kwargs)
        return mutated[0] if len(mutated) == 1 else tuple(mutated)

    def _call_out(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = kwargs["out"]
        rest = {key: value for key, value in kwargs.items() if key != "out"}
        if out is None:
            return self.forward.overload(*args, **rest)
        if self.out is None:
            raise RegistrationError(self.name, "it returns a list of tensors, for which there is no out= form")
        outs = out if isinstance(out, (tuple, list)) else (out,)
        names = [argument.name for argument in self.out.signature.mutated]
        if len(outs) != len(names):
            raise RegistrationError(self.name, f"out= takes {len(names)} tensors, not {len(outs)}")
        self.out.overload(*args, **rest, **dict(zip(names, outs, strict=True)))
        return out

    # --- kernels ----------------------------------------------------------------------------------------------

    def set_autocast(self, device: str, policy: str | torch.dtype) -> None:
        for operator in (self.forward, self.functional, self.out):
            if operator is not None:
                operator.set_autocast(device, policy)

    def set(self, given: Registered) -> None:
        if given.direction == "forward":
            self.set_kernel(given.device, given.function, given.layout, given.name, given.inline)
        else:
            self.set_backward_kernel(given.device, given.function, given.layout, given.name, given.saves, given.inline)
        self.given[given.direction, given.device] = given

    def set_kernel(
        self, device: str, fn: Callable[..., Any] | NativeFunction, layout: str, name: str, inline: bool = False
    ) -> None:
        kernel = _kernel(name, device, fn, layout, self.forward.signature)
        if inline:
            kernel.traced = _positional(_traced(fn), self.forward.signature)
        _give(self.forward, kernel)
        if self.functional is not None:
            mutated = [i for i, argument in enumerate(self.forward.signature.arguments) if argument.mutated]
            function = _functional(lambda *args: kernel.function(*args), mutated)
            traced = None if kernel.traced is None else _functional(kernel.traced, mutated)
            function.__name__ = getattr(fn, "__name__", str(fn))
            _give(self.functional, Kernel(name, device, function, layout, author=kernel.author, traced=traced))

    def set_backward_kernel(
        self,
        device: str,
        fn: Callable[..., Any] | NativeFunction,
        layout: str,
        name: str,
        saves: Sequence[str] | None,
        inline: bool = False,
    ) -> None:
        if self.differentiable.written_gradient is not None:
            raise RegistrationError(
                self.name, "its gradient is written by register_autograd already; use one of the two"
            )
        forward = self.differentiable.signature
        names = _saved_names(self.name, fn, forward, saves)
        if self.backward.backward is None:
            second = f"{self.name}_backward_backward"
            self.backward.set_backward(self._operator(second, Vjp(self.backward.reference, second)))
        if isinstance(fn, NativeFunction):
            kernel = _native_backward(name, device, fn, layout, self.backward.signature, forward, names)
        else:
            function = _python_backward(self.name, languages.launching(fn), forward, self.backward, names)
            kernel = Kernel(name, device, function, layout, author=fn)
            if inline:
                kernel.traced = _python_backward(self.name, _traced(fn), forward, self.backward, names)
        kernel.saves = names
        _give(self.backward, kernel)
        self.differentiable.backward_replaced()


def _refuse_overlap(name: str, signature: Signature, values: Sequence[Any]) -> None:
    """An op that changes a tensor must not be given it, or its memory, a second time: what the other argument holds
    would then depend on how far the op has come, and on whether a gradient is recorded."""
    tensors = [(a, t) for a, v in zip(signature.arguments, values, strict=True) for t in flatten([a], [v])]
    for index, (argument, tensor) in enumerate(tensors):
        for other, second in tensors[:index]:
            if (argument.mutated or other.mutated) and tensor is not None and second is not None:
                if overlap(tensor, second):
                    raise SharedMemoryError(name, other.name, argument.name)


class Needs:
    """Which tensors want a gradient: `needs.x`, `needs[0]`, iteration. A list argument gives a tuple, one flag a
    tensor."""

    def __init__(self, names: Sequence[str], flags: Sequence[Any]) -> None:
        self._flags = dict(zip(names, flags, strict=True))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_flags"][name]
        except KeyError:
            raise AttributeError(f"needs has no {name!r}; the op's tensors are {', '.join(self._flags)}") from None

    def __getitem__(self, index: int) -> Any:
        return list(self._flags.values())[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._flags.values())

    def __len__(self) -> int:
        return len(self._flags)

    def __repr__(self) -> str:
        return f"Needs({', '.join(f'{name}={flag}' for name, flag in self._flags.items())})"


def _kernel(
    name: str, device: str, fn: Callable[..., Any] | NativeFunction, layout: str, signature: Signature
) -> Kernel:
    if isinstance(fn, NativeFunction):
        return _native_kernel(name, device, fn, layout, signature.positional())
    return Kernel(name, device, _positional(languages.launching(fn), signature), layout, author=fn)


def _positional(fn: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """An author's function, called with every argument in schema order."""
    positional = sum(not argument.keyword_only for argument in signature.arguments)
    if positional == len(signature.arguments):
        return fn
    keywords = [argument.name for argument in signature.arguments[positional:]]

    def function(*args: Any) -> Any:
        return fn(*args[:positional], **dict(zip(keywords, args[positional:], strict=True)))

    function.__wrapped__ = fn  # type: ignore[attr-defined]
    function.__name__ = getattr(fn, "__name__", repr(fn))
    return function


def _functional(changing: Callable[..., Any], mutated: Sequence[int]) -> Callable[..., Any]:
    """A kernel that changes tensors, on copies of them, which it returns."""

    def function(*args: Any) -> Any:
        copied = [contiguous_clone(v) if index in mutated else v for index, v in enumerate(args)]
        if changing(*copied) is NotImplemented:
            return NotImplemented
        changed = tuple(copied[index] for index in mutated)
        return changed[0] if len(changed) == 1 else changed

    return function


def _traced(fn: Callable[..., Any] | NativeFunction) -> Callable[..., Any]:
    from ..kernels import triton

    assert not isinstance(fn, NativeFunction)  # Op has refused it
    return triton.traced(fn)


def _give(operator: Operator, kernel: Kernel) -> None:
    operator.set_kernel(kernel)
    if kernel.traced is not None:
        from ..kernels import triton

        triton.let_through(operator)


def _native_kernel(
    name: str,
    device: str,
    fn: NativeFunction,
    layout: str,
    taken: Signature,
    positions: tuple[int, ...] | None = None,
) -> Kernel:
    """A C++ kernel, which `taken` describes; `positions` are those of its arguments among the operator's. Where its
    library is not built yet, the first call builds it: that one comes through Python, for it is checked."""
    lock = threading.Lock()

    def enter() -> Callable[..., Any]:
        with lock:
            if kernel.operator is None:
                operator = fn.as_operator(taken.schema)
                call = operator.call
                if positions is not None:
                    call = lambda *args: operator.call(*[args[position] for position in positions])  # noqa: E731
                kernel.operator, kernel.function = operator, call
        return kernel.function

    kernel = Kernel(name, device, lambda *args: enter()(*args), layout, native=fn, positions=positions)
    if fn.ready:
        enter()
    return kernel


def _saved_names(
    op_name: str, fn: Callable[..., Any] | NativeFunction, forward: Signature, saves: Sequence[str] | None
) -> tuple[str, ...]:
    """The arguments and results a backward kernel takes, from its parameters or, for C++, from `saves`."""
    known = [argument.name for argument in forward.arguments]
    results = ["outputs"] if forward.returns_list else list(forward.result_names)
    known += [name for name in results if name not in known]
    if saves is None:
        if isinstance(fn, NativeFunction):
            raise RegistrationError(
                op_name,
                'a C++ backward does not tell what it takes: give saves=("x", ...), names of arguments and results',
            )
        parameters = list(inspect.signature(fn).parameters.values())
        keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        if not parameters or parameters[0].name != "grads" or keyword != ["needs"]:
            raise RegistrationError(
                op_name, f"a backward kernel is `def _(grads, ..., *, needs)`, but {described(fn)} is "
                f"`def {getattr(fn, '__name__', fn)}{inspect.signature(fn)}`"
            )  # fmt: skip
        saves = [p.name for p in parameters[1:] if p.kind is not p.KEYWORD_ONLY]
    elif not isinstance(fn, NativeFunction):
        try:
            inspect.signature(fn).bind((), *saves, needs=None)
        except TypeError as error:
            call = f"({', '.join(['grads', *saves])}, needs=needs)"
            raise RegistrationError(
                op_name, f"a backward kernel with saves={tuple(saves)} is called with {call}, and {described(fn)} is "
                f"`def {getattr(fn, '__name__', fn)}{inspect.signature(fn)}`: {error}"
            ) from error  # fmt: skip
    for name in saves:
        if name not in known:
            raise RegistrationError(
                op_name, f"the backward kernel asks for {name!r}, which is neither an argument nor a result; there are "
                f"{', '.join(known)}"
            )  # fmt: skip
    return tuple(saves)


def _python_backward(
    op_name: str, fn: Callable[..., Any], forward: Signature, backward: Operator, names: tuple[str, ...]
) -> Callable[..., Any]:
    reference = backward.reference
    assert isinstance(reference, Vjp)
    tensors = forward.tensors
    # By position, since a result and an argument may bear one name in the two signatures.
    positions = _positions(forward, names)

    def function(*args: Any) -> Any:
        grads, inputs, flags = reference.split(args)
        grouped = _grouped(forward, inputs, flags)
        needs = Needs([argument.name for argument in tensors], grouped)
        returned = fn(tuple(grads), *[args[position] for position in positions], needs=needs)
        if returned is NotImplemented:
            return returned
        entries = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(entries) != len(tensors):
            raise KernelResultError(
                f"{op_name}_backward", described(fn), f"it returned {len(entries)} gradients for {len(tensors)} tensor "
                f"arguments ({', '.join(argument.name for argument in tensors)})"
            )  # fmt: skip
        values = [v for a, v in zip(forward.arguments, inputs, strict=True) if a.is_tensor]
        return _needed(tensors, values, grouped, entries)

    function.__wrapped__ = fn  # type: ignore[attr-defined]
    function.__name__ = getattr(fn, "__name__", repr(fn))
    return function


def _native_backward(
    name: str,
    device: str,
    fn: NativeFunction,
    layout: str,
    backward: Signature,
    forward: Signature,
    names: tuple[str, ...],
) -> Kernel:
    grads = 1 if forward.returns_list else len(forward.results)
    positions = [*range(grads), *_positions(forward, names), len(backward.arguments) - 1]
    first_result = grads + len(forward.arguments)
    arguments = [backward.arguments[position] for position in positions]
    arguments = [
        _kept_result(a) if first_result <= p < positions[-1] else a for p, a in zip(positions, arguments, strict=True)
    ]
    return _native_kernel(name, device, fn, layout, Signature(tuple(arguments), backward.results), tuple(positions))


def _kept_result(argument: Argument) -> Argument:
    """A result that a kernel names is always there."""
    bare = argument.type.replace("?", "")
    return replace(argument, type=bare, kind=Kind(bare))


def _positions(forward: Signature, names: Sequence[str]) -> list[int]:
    """Where the backward operator's arguments hold what a backward kernel names."""
    grads = 1 if forward.returns_list else len(forward.results)
    arguments = [argument.name for argument in forward.arguments]
    results = ["outputs"] if forward.returns_list else list(forward.result_names)
    return [
        grads + (arguments.index(name) if name in arguments else len(arguments) + results.index(name)) for name in names
    ]


def _grouped(forward: Signature, inputs: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The flat flags by argument: a bool for a tensor, a tuple for a list."""
    remaining = iter(flags)
    grouped: list[Any] = []
    for argument, value in zip(forward.arguments, inputs, strict=True):
        if argument.kind in (Kind.TENSOR, Kind.OPTIONAL_TENSOR):
            grouped.append(bool(next(remaining)))
        elif argument.is_tensor:
            grouped.append(tuple(bool(next(remaining)) for _ in value))
    return grouped


def _needed(tensors: Sequence[Argument], values: Sequence[Any], grouped: list[Any], entries: list[Any]) -> list[Any]:
    """The gradients asked for, in order; a kernel's None for one of them means zero."""
    found: list[Any] = []
    for _argument, value, flags, entry in zip(tensors, values, grouped, entries, strict=True):
        if isinstance(flags, tuple):
            parts = list(entry) if entry is not None else [None] * len(flags)
            found += [_or_zero(p, v) for p, v, flag in zip(parts, value, flags, strict=True) if flag]
        elif flags:
            found.append(_or_zero(entry, value))
    return found


def _or_zero(grad: Any, like: torch.Tensor) -> Any:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device) if grad is None else grad
