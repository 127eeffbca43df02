"""Giving an op its parts: register_kernel, register_backward, register_autograd, register_autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import OpsmithError, SourceLine, definition, listed, quoted


class RegistrationError(OpsmithError, ValueError):
    """The base of errors about what was registered for an op."""

    message = "{what}"

    def __init__(self, name: str, *, function: Callable[..., Any] | None = None, **facts: Any) -> None:
        """`facts` fill in the message, which ends with the line that defines `function`, or else makes the call."""
        line = None if function is None else definition(function)
        shown = {key: listed(fact) if isinstance(fact, (list, tuple)) else fact for key, fact in facts.items()}
        super().__init__(f"{name}: {self.message.format(**shown)}.{quoted(line or SourceLine.of_call())}")


class UnknownDeviceError(RegistrationError):
    """A device that kernels cannot be registered for."""

    message = "device={given!r} is not one of {accepted}. Write 'cuda' for a GPU kernel: it runs on every GPU"


class LayoutError(RegistrationError):
    """A layout that tensors cannot be passed to a kernel in."""

    message = (
        "layout={given!r} is not one of {accepted}. Write layout='strided' if the kernel uses the strides of its "
        "tensors; else leave it out"
    )


class KernelNameError(RegistrationError):
    """A name that a kernel cannot have."""

    message = (
        "name={given!r} is not a name for a kernel. Use letters, digits and underscores, and none of the reserved "
        "names {reserved}"
    )


class KernelTypeError(RegistrationError, TypeError):
    """A kernel that cannot be called."""

    message = (
        "a kernel is a function of the op's arguments, not {given}. Pass a Python function, or a C++ function of an "
        "opsmith.extension"
    )


class NotAFunctionError(RegistrationError, TypeError):
    """A part of an op that cannot be called."""

    message = "{method} takes a function, not {given}"


class KernelSignatureError(RegistrationError, TypeError):
    """A kernel whose parameters or types are not those that the op calls it with."""


class InlineKernelError(RegistrationError):
    """inline=True for a kernel that torch.compile cannot trace."""

    message = "inline=True lets torch.compile see Triton kernels, {what}"


class SavesMissingError(RegistrationError, TypeError):
    """A C++ backward kernel without `saves`."""

    message = (
        'a C++ backward kernel needs saves=("x", ...), the names of what it takes after the gradients. There are '
        "{accepted}"
    )


class UnknownSaveError(RegistrationError):
    """A backward kernel that asks for something that the op does not have."""

    message = (
        "the backward kernel asks for {given!r}, which is neither an argument nor a result. There are {accepted}. "
        "Rename or remove it"
    )


class GradientTakenError(RegistrationError):
    """A second gradient for an op that has one."""

    message = "its gradient is already written by {method}; use one of the two"


class KeywordOnlyTensorError(RegistrationError, TypeError):
    """register_autograd for an op with a keyword-only tensor."""

    message = (
        "register_autograd supports no gradient for a keyword-only tensor, and {argument!r} is one. Make it "
        "positional, or write the gradient with register_backward"
    )


class AutocastPolicyError(RegistrationError):
    """An autocast policy that does not exist."""

    message = "autocast={given!r} is not one of {accepted}. For a fixed dtype call op.register_autocast(device, dtype)"


class AutocastDtypeError(RegistrationError, TypeError):
    """register_autocast with something other than a dtype."""

    message = "register_autocast takes a torch.dtype, not {given}. Pass torch.float16, for example"


class NumbaKernelTypeError(RegistrationError, TypeError):
    """numba_kernel with something other than a kernel of Numba."""

    message = (
        "it takes what @numba.cuda.jit returns for a function, not {given}. Write @opsmith.numba_kernel above "
        "@numba.cuda.jit"
    )


class NumbaDeviceFunctionError(RegistrationError, TypeError):
    """numba_kernel with a device function."""

    message = (
        "{given} is a device function (device=True), which kernels call and which cannot be launched. Leave "
        "device=True out, or @opsmith.numba_kernel"
    )


class NumbaStreamError(RegistrationError):
    """A function that launches a Numba kernel on Numba's own stream."""

    message = (
        "{launcher} launches the Numba kernel {kernel} on Numba's own stream, which does not wait for torch's work, "
        "nor torch for it. Launch it on torch's stream: {called} = opsmith.numba_kernel({called}), or write "
        "@opsmith.numba_kernel above its @numba.cuda.jit"
    )


class DispatcherError(RegistrationError, RuntimeError):
    """torch's dispatcher, or opsmith's C++ runtime, refused a registration."""
