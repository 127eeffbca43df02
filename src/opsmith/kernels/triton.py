"""Triton kernels, launched from Python in a function given to register_kernel.

Such a function is a kernel like any other, and opaque to torch.compile. With inline=True torch.compile sees the Triton
kernels themselves: to trace an operator it runs a copy of the function, in which each of them is wrapped by
torch.library.wrap_triton, as torch.library.triton_op requires. Triton itself takes the device and the stream of a
launch from torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch._library import triton as torch_triton

from ..errors import InlineKernelError, KernelValueError, SourceLine, described
from .languages import imported
from .substitution import reached, substituted


def used_by(function: Any) -> bool:
    """Whether a function launches a Triton kernel. Imports nothing."""
    return bool(reached(function, is_kernel))


def is_kernel(value: Any) -> bool:
    """Whether this is a kernel that Triton can launch, or one wrapped by wrap_triton."""
    runtime = sys.modules.get("triton.runtime.jit")
    if runtime is not None and isinstance(value, runtime.KernelInterface):
        return True
    traceable = _traceable()
    return traceable is not None and isinstance(value, traceable)


def _traceable() -> Any:
    """The class of what wrap_triton returns, where torch has loaded it."""
    return getattr(sys.modules.get("torch._higher_order_ops.triton_kernel_wrap"), "TraceableTritonKernelWrapper", None)


def bare(kernel: Any) -> Any:
    traceable = _traceable()
    return kernel.kernel if traceable is not None and isinstance(kernel, traceable) else kernel


def _is_kernel_or_wrap(value: Any) -> bool:
    return value is torch_triton.wrap_triton or value is torch_triton.capture_triton or is_kernel(value)


# --- on the CPU -----------------------------------------------------------------------------------------------------


def emulated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its kernels interpreted."""
    from .triton_interpreter import Launcher

    def replacement(value: Any) -> Any:
        return Launcher(bare(value)) if is_kernel(value) else lambda kernel: kernel

    @functools.wraps(function)
    def launched(*args: Any, **keywords: Any) -> Any:
        return substituted(function, _is_kernel_or_wrap, replacement)(*args, **keywords)

    return launched


# --- on the GPU -----------------------------------------------------------------------------------------------------


def launching(function: Any) -> Callable[..., Any]:
    """The function, with an error of ours where it launches a kernel on CPU tensors."""

    @functools.cache
    def wraps() -> bool:
        wrappers = (torch_triton.wrap_triton, torch_triton.capture_triton)
        return bool(reached(imported(function), lambda value: value in wrappers))

    @functools.wraps(function, updated=())
    def launched(*args: Any, **keywords: Any) -> Any:
        try:
            if not wraps():
                return function(*args, **keywords)
            # Unless something is traced, what wrap_triton returns costs a millisecond a launch.
            with torch_triton.set_wrap_triton_enabled(False):
                return function(*args, **keywords)
        except (RuntimeError, ValueError) as error:
            # Triton's message with a GPU, and its message without one.
            if "cannot be accessed from Triton" in str(error) or "active drivers" in str(error):
                raise KernelValueError(
                    f"The Triton kernel of {described(imported(function))}",
                    f"it runs on a GPU, and Triton reports: {str(error).splitlines()[0].rstrip('.')}. Move the tensors "
                    "to a GPU, x = x.cuda(), or run the op on the CPU inside `with opsmith.emulate():`",
                    str(SourceLine.of_error(error) or ""),
                ) from error
            raise

    return launched


# --- inside torch.compile -------------------------------------------------------------------------------------------


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its kernels in a form that torch traces."""

    def wrapped_once(kernel: Any) -> Any:
        """wrap_triton, for a kernel that this file may have wrapped already."""
        return kernel if isinstance(kernel, _traceable() or ()) else torch_triton.wrap_triton(kernel)

    def replacement(value: Any) -> Any:
        return _wrapped(value) if is_kernel(value) else wrapped_once

    @functools.wraps(function, updated=())
    def launched(*args: Any, **keywords: Any) -> Any:
        with torch_triton.set_wrap_triton_enabled(True):
            return substituted(imported(function), _is_kernel_or_wrap, replacement)(*args, **keywords)

    return launched


def _wrapped(kernel: Any) -> Any:
    from triton.runtime.autotuner import Heuristics

    inner = kernel = bare(kernel)
    while inner is not None and not isinstance(inner, Heuristics):
        inner = getattr(inner, "fn", None)
    if inner is not None:
        function = _function(kernel)
        raise InlineKernelError(
            f"the Triton kernel {described(function)}", what="but torch traces no @triton.heuristics. Compute those "
            "values in the function that launches it, or leave inline=True out",
            function=function,
        )  # fmt: skip
    return torch_triton.wrap_triton(kernel)


def _function(kernel: Any) -> FunctionType:
    """The author's function under everything that decorates it."""
    while not isinstance(kernel, FunctionType):
        kernel = kernel.fn
    return kernel
