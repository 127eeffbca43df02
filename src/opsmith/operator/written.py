"""What authors register as kernels, as the kernels that operators run: arguments in schema order, results checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ..errors import KernelResultError, KernelSignatureError, SavesMissingError, UnknownSaveError, described
from ..kernels import Kernel, NativeFunction, NativeKernel, PythonKernel, languages
from ..reference.forms import on_copies
from ..reference.signature import Argument, Kind, Signature, unflatten
from ..reference.vjp import Vjp
from ..runtime.operator import Operator


@dataclass(frozen=True, eq=False)
class Registration:
    """A kernel as its author registered it."""

    direction: str  # "forward" or "backward"
    device: str
    function: Callable[..., Any] | NativeFunction
    layout: str
    name: str
    saves: Sequence[str] | None = None
    inline: bool = False

    @cached_property
    def emulated(self) -> Registration | None:
        """The same kernel for CPU tensors, if it is a GPU kernel that can be emulated."""
        function = languages.emulated(self.function) if self.device == "cuda" else None
        return None if function is None else replace(self, device="cpu", function=function, inline=False)


def forward_kernel(given: Registration, signature: Signature) -> PythonKernel | NativeKernel:
    fn = given.function
    if isinstance(fn, NativeFunction):
        return NativeKernel(given.name, given.device, given.layout, fn, signature.positional())
    traced = _positional(_traced(fn), signature) if given.inline else None
    function = _positional(languages.launching(fn), signature)
    return PythonKernel(given.name, given.device, given.layout, function, author=fn, traced=traced)


def functional_kernel(kernel: PythonKernel | NativeKernel, signature: Signature) -> PythonKernel:
    """An in-place kernel, on copies of the tensors it changes; it returns the copies."""
    author = kernel.author if isinstance(kernel, PythonKernel) else kernel.native
    traced = kernel.traced if isinstance(kernel, PythonKernel) else None
    function = on_copies(lambda *args: kernel.function(*args), signature)
    function.__name__ = getattr(author, "__name__", str(author))
    return PythonKernel(
        kernel.name,
        kernel.device,
        kernel.layout,
        function,
        author=author if callable(author) else function,
        traced=None if traced is None else on_copies(traced, signature),
    )


def backward_kernel(given: Registration, op_name: str, forward: Signature, backward: Operator) -> Kernel:
    """The kernel of a backward operator. `forward` is the signature of the operator that it differentiates."""
    fn = given.function
    names = _saved_names(op_name, fn, forward, given.saves)
    if isinstance(fn, NativeFunction):
        return _native_backward(given, fn, backward.signature, forward, names)
    return PythonKernel(
        given.name,
        given.device,
        given.layout,
        _python_backward(op_name, languages.launching(fn), forward, backward, names),
        author=fn,
        traced=_python_backward(op_name, _traced(fn), forward, backward, names) if given.inline else None,
        saves=names,
    )


class Needs:
    """Which tensors need a gradient: `needs.x`, `needs[0]`, iteration. A list argument gives a tuple with one flag per
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


def _positional(fn: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """An author's function, called with every argument in schema order."""
    if not any(argument.keyword_only for argument in signature.arguments):
        return fn

    def function(*args: Any) -> Any:
        positional, keyword = signature.arranged(args)
        return fn(*positional, **keyword)

    return _named_after(fn, function)


def _named_after(fn: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which messages show as the author's."""
    function.__wrapped__ = fn  # type: ignore[attr-defined]
    function.__name__ = getattr(fn, "__name__", repr(fn))
    return function


def _traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    from ..kernels import triton

    return triton.traced(fn)


def _saved_names(
    op_name: str, fn: Callable[..., Any] | NativeFunction, forward: Signature, saves: Sequence[str] | None
) -> tuple[str, ...]:
    """The arguments and results a backward kernel takes, from its parameters or, for C++, from `saves`."""
    known = dict.fromkeys([*(argument.name for argument in forward.arguments), *forward.result_names])
    if saves is None:
        if isinstance(fn, NativeFunction):
            raise SavesMissingError(op_name, accepted=list(known))
        parameters = list(inspect.signature(fn).parameters.values())
        keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        if not parameters or parameters[0].name != "grads" or keyword != ["needs"]:
            raise KernelSignatureError(
                op_name, what=f"a backward kernel is `def _(grads, ..., *, needs)`, but {described(fn)} is "
                f"`def {getattr(fn, '__name__', fn)}{inspect.signature(fn)}`",
                function=fn,
            )  # fmt: skip
        saves = [p.name for p in parameters[1:] if p.kind is not p.KEYWORD_ONLY]
    elif not isinstance(fn, NativeFunction):
        try:
            inspect.signature(fn).bind((), *saves, needs=None)
        except TypeError as error:
            call = f"({', '.join(['grads', *saves])}, needs=needs)"
            raise KernelSignatureError(
                op_name, what=f"a backward kernel with saves={tuple(saves)} is called with {call}, and {described(fn)} "
                f"is `def {getattr(fn, '__name__', fn)}{inspect.signature(fn)}`: {error}",
                function=fn,
            ) from error  # fmt: skip
    author = None if isinstance(fn, NativeFunction) else fn
    for name in saves:
        if name not in known:
            raise UnknownSaveError(op_name, given=name, accepted=list(known), function=author)
    return tuple(saves)


def _python_backward(
    op_name: str, fn: Callable[..., Any], forward: Signature, backward: Operator, names: tuple[str, ...]
) -> Callable[..., Any]:
    reference = backward.reference
    assert isinstance(reference, Vjp)
    tensors = forward.tensors
    # By position: a result and an argument may have the same name in the two signatures.
    positions = _positions(forward, names)

    def function(*args: Any) -> Any:
        grads, inputs, flags = reference.split(args)
        values = [value for argument, value in zip(forward.arguments, inputs, strict=True) if argument.is_tensor]
        # A bool for a tensor, a tuple for a list of them.
        grouped = [tuple(each) if isinstance(each, list) else each for each in unflatten(tensors, values, flags)]
        needs = Needs([argument.name for argument in tensors], grouped)
        returned = fn(tuple(grads), *[args[position] for position in positions], needs=needs)
        if returned is NotImplemented:
            return returned
        entries = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(entries) != len(tensors):
            raise KernelResultError(
                f"{op_name}_backward", described(fn), f"it returned {len(entries)} gradients for {len(tensors)} tensor "
                f"arguments ({', '.join(argument.name for argument in tensors)})", function=fn,
            )  # fmt: skip
        return _needed(values, grouped, entries)

    return _named_after(fn, function)


def _native_backward(
    given: Registration, fn: NativeFunction, backward: Signature, forward: Signature, names: tuple[str, ...]
) -> NativeKernel:
    grads = len(forward.results)
    positions = [*range(grads), *_positions(forward, names), len(backward.arguments) - 1]
    first_result = grads + len(forward.arguments)
    arguments = [backward.arguments[position] for position in positions]
    arguments = [
        _saved_result(a) if first_result <= p < positions[-1] else a for p, a in zip(positions, arguments, strict=True)
    ]
    signature = Signature(tuple(arguments), backward.results)
    return NativeKernel(given.name, given.device, given.layout, fn, signature, positions=tuple(positions), saves=names)


def _saved_result(argument: Argument) -> Argument:
    """A result that a kernel names is always saved, so it is not optional for the kernel."""
    bare = argument.type.replace("?", "")
    return replace(argument, type=bare, kind=Kind(bare))


def _positions(forward: Signature, names: Sequence[str]) -> list[int]:
    """Where the backward operator's arguments hold what a backward kernel names."""
    places = [*(argument.name for argument in forward.arguments), *forward.result_names]
    return [len(forward.results) + places.index(name) for name in names]


def _needed(values: Sequence[Any], grouped: list[Any], entries: list[Any]) -> list[Any]:
    """The gradients asked for, in order; a kernel's None for one of them means zero."""
    found: list[Any] = []
    for value, flags, entry in zip(values, grouped, entries, strict=True):
        if isinstance(flags, tuple):
            parts = list(entry) if entry is not None else [None] * len(flags)
            found += [_or_zero(p, v) for p, v, flag in zip(parts, value, flags, strict=True) if flag]
        elif flags:
            found.append(_or_zero(entry, value))
    return found


def _or_zero(grad: Any, like: torch.Tensor) -> Any:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device) if grad is None else grad
