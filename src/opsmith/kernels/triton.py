"""Triton kernels, launched from Python in a function given to register_kernel.

Such a function is a kernel like any other, and opaque to torch.compile. With inline=True torch.compile sees the Triton
kernels themselves: while it traces an operator it runs a copy of the function, in which each of them is wrapped by
torch.library.wrap_triton, as torch.library.triton_op asks of its author. Triton asks torch for the device and the
stream of a launch, so nothing is left to do about those.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._library import triton as torch_triton
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from ..errors import CpuTensorError, RegistrationError, described
from ..reference.tensors import contiguous_clone
from ..runtime import execution
from .deferred import imported
from .substitution import Search, reached, substituted

if TYPE_CHECKING:
    from ..runtime.operator import Operator

LANGUAGE = "Triton"
PACKAGE = "triton"
_PLAIN_TENSORS = (torch.Tensor, FunctionalTensor)


def used_by(function: Any) -> bool:
    """Whether a function launches a Triton kernel. Nothing is imported to find out."""
    return bool(reached(function, is_kernel))


def is_kernel(value: Any) -> bool:
    """Whether this is something of Triton's that can be launched, or such a thing wrapped by wrap_triton."""
    runtime = sys.modules.get("triton.runtime.jit")
    if runtime is not None and isinstance(value, runtime.KernelInterface):
        return True
    traceable = _traceable()
    return traceable is not None and isinstance(value, traceable)


def _traceable() -> Any:
    """The class of what wrap_triton returns, where torch has loaded it."""
    return getattr(sys.modules.get("torch._higher_order_ops.triton_kernel_wrap"), "TraceableTritonKernelWrapper", None)


def _bare(kernel: Any) -> Any:
    traceable = _traceable()
    return kernel.kernel if traceable is not None and isinstance(kernel, traceable) else kernel


def _is_kernel_or_wrap(value: Any) -> bool:
    return value is torch_triton.wrap_triton or value is torch_triton.capture_triton or is_kernel(value)


# --- on the CPU -----------------------------------------------------------------------------------------------------


def emulated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its kernels interpreted."""
    from .triton_interpreter import Launcher

    def replacement(value: Any) -> Any:
        return Launcher(_bare(value)) if is_kernel(value) else _identity

    @functools.wraps(function)
    def launched(*args: Any, **keywords: Any) -> Any:
        return substituted(function, _is_kernel_or_wrap, replacement)(*args, **keywords)

    return launched


def _identity(kernel: Any) -> Any:
    return kernel


# --- on the GPU -----------------------------------------------------------------------------------------------------


def launching(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which tells in words when it launches a kernel on CPU tensors."""
    wraps = bool(reached(function, lambda value: value in (torch_triton.wrap_triton, torch_triton.capture_triton)))

    @functools.wraps(function)
    def launched(*args: Any, **keywords: Any) -> Any:
        try:
            if not wraps:
                return function(*args, **keywords)
            # Where nothing is traced, what wrap_triton returns costs a millisecond a launch.
            with torch_triton.set_wrap_triton_enabled(False):
                return function(*args, **keywords)
        except (RuntimeError, ValueError) as error:
            words = str(error)
            if "cannot be accessed from Triton" in words:  # which Triton says on a machine with a GPU
                raise CpuTensorError(f"The Triton kernel of {described(function)}", _first_line(words)) from error
            if "active drivers" in words:  # and on one without
                told = "there is none that Triton can use here"
                raise CpuTensorError(f"The Triton kernel of {described(function)}", told) from error
            raise

    return launched


def _first_line(words: str) -> str:
    return words.splitlines()[0].rstrip(".")


# --- inside torch.compile -------------------------------------------------------------------------------------------


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its kernels in a form that torch traces."""

    def replacement(value: Any) -> Any:
        return _wrapped(value) if is_kernel(value) else _wrapped_once

    @functools.wraps(function, updated=())
    def launched(*args: Any, **keywords: Any) -> Any:
        with torch_triton.set_wrap_triton_enabled(True):
            return substituted(imported(function), _is_kernel_or_wrap, replacement)(*args, **keywords)

    return launched


def _wrapped(kernel: Any) -> Any:
    from triton.runtime.autotuner import Heuristics

    inner = kernel = _bare(kernel)
    while inner is not None and not isinstance(inner, Heuristics):
        inner = getattr(inner, "fn", None)
    if inner is not None:
        raise RegistrationError(
            f"the Triton kernel {described(_function(kernel))}", "torch traces no @triton.heuristics; compute those "
            "values in the function that launches it, or leave inline=True away"
        )  # fmt: skip
    return torch_triton.wrap_triton(kernel)


def _wrapped_once(kernel: Any) -> Any:
    """wrap_triton, for a kernel that this file may have wrapped already."""
    return kernel if isinstance(kernel, _traceable() or ()) else torch_triton.wrap_triton(kernel)


_let_through: weakref.WeakSet[Operator] = weakref.WeakSet()


def let_through(operator: Operator) -> None:
    """Lets torch.compile see the kernels of an operator whose "cuda" kernel is `inline`.

    The rule stands where torch makes an operator functional, as it does for those of torch.library.triton_op. Gradients
    are recorded above it, and the backward operator has a rule of its own."""
    if operator in _let_through:
        return
    _let_through.add(operator)

    def rule(mode: Any, op: Any, types: Any, args: Any, kwargs: Any) -> Any:
        values = operator.signature.bind(args, kwargs)
        function = _traceable_function(operator, values)
        if function is None or _exporting():
            return mode.__torch_dispatch__(op, types, args, kwargs)
        if any(not issubclass(each, FakeTensor) and each not in _PLAIN_TENSORS for each in types):
            return NotImplemented
        with mode:
            returned = _run_traced(operator, function, values)
        return mode.__torch_dispatch__(op, types, args, kwargs) if returned is NotImplemented else returned

    torch.library.register_torch_dispatch(operator.name, FunctionalTensorMode, rule, lib=operator.library)
    # By these torch's cache of compiled graphs knows that a kernel has changed: the graph itself names the operator.
    torch_triton.triton_ops_to_kernels[operator.name] = _Sources(operator)  # type: ignore[assignment]


def _traceable_function(operator: Operator, values: Any) -> Callable[..., Any] | None:
    kernel = operator.kernels.get("cuda")
    device = execution.check_one_device(operator.name, operator.signature.arguments, values)
    if kernel is None or device is None or device.type != "cuda":
        return None
    return kernel.traced


def _exporting() -> bool:
    """torch.export keeps the operator: a program that is saved cannot hold a Triton kernel."""
    from torch.export._trace import custom_triton_ops_decomposition_disabled

    return bool(custom_triton_ops_decomposition_disabled())


def _run_traced(operator: Operator, function: Callable[..., Any], values: Any) -> Any:
    signature = operator.signature
    taken = values
    if operator.kernels["cuda"].layout == "contiguous":
        tensors = signature.flatten(values)
        taken = signature.unflatten(
            values, [t if t is None or t.is_contiguous() else contiguous_clone(t) for t in tensors]
        )
    with torch._C._DisableAutocast():
        returned = function(*taken)
    if returned is NotImplemented:
        return returned
    execution.write_back(signature.arguments, values, taken)
    return operator.reference.laid_out(returned, values)


class _Sources:
    """Everything whose text decides what an operator's traced kernels do, its gradient's too; found when it is asked
    for, since a kernel may not be imported yet. Each entry is as torch wants a kernel: with `src`, `fn`, `__name__`."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def __iter__(self) -> Iterator[Any]:
        operator: Operator | None = self._operator
        while operator is not None:
            kernel = operator.kernels.get("cuda")
            if kernel is not None and kernel.traced is not None:
                search = Search(is_kernel)
                search.visit(imported(kernel.author))
                yield from map(_Source, search.functions.values())
                yield from (_compiled(each) for each in search.found.values())
            operator = operator.backward


class _Source:
    def __init__(self, function: FunctionType) -> None:
        self.fn = function
        self.__name__ = function.__name__
        try:
            self.src = inspect.getsource(function)
        except (OSError, TypeError):  # typed in: the code itself
            self.src = function.__code__.co_code.hex()


def _compiled(kernel: Any) -> Any:
    """The JITFunction under an autotuner."""
    kernel = _bare(kernel)
    while not hasattr(kernel, "src"):
        kernel = kernel.fn
    return kernel


def _function(kernel: Any) -> FunctionType:
    """The author's function under everything that decorates it."""
    while not isinstance(kernel, FunctionType):
        kernel = kernel.fn
    return kernel
