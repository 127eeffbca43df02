"""Giving an op its parts: register_kernel, register_backward, register_autograd, register_autocast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .base import OpsmithError, SourceLine, definition, described, listed, quoted


class RegistrationError(OpsmithError, ValueError):
    """The base of errors about what was registered for an op."""

    def __init__(self, name: str, what: str, function: Callable[..., Any] | None = None) -> None:
        """The message ends with the line that defines `function`, else with the line of the call."""
        line = None if function is None else definition(function)
        super().__init__(f"{name}: {what}.{quoted(line or SourceLine.of_call())}")


class UnknownDeviceError(RegistrationError):
    """A device that kernels cannot be registered for."""

    def __init__(self, name: str, device: object, accepted: Sequence[str]) -> None:
        super().__init__(
            name, f"device={device!r} is not one of {listed(accepted)}. Write 'cuda' for a GPU kernel: it runs on "
            "every GPU"
        )  # fmt: skip


class LayoutError(RegistrationError):
    """A layout that tensors cannot be passed to a kernel in."""

    def __init__(self, name: str, layout: object, accepted: Sequence[str]) -> None:
        super().__init__(
            name, f"layout={layout!r} is not one of {listed(accepted)}. Write layout='strided' if the kernel uses the "
            "strides of its tensors; else leave it out"
        )  # fmt: skip


class KernelNameError(RegistrationError):
    """A name that a kernel cannot have."""

    def __init__(self, name: str, kernel: object, reserved: Sequence[str]) -> None:
        super().__init__(
            name, f"name={kernel!r} is not a name for a kernel. Use letters, digits and underscores, and none of "
            f"{listed(reserved)}"
        )  # fmt: skip


class KernelTypeError(RegistrationError, TypeError):
    """A kernel that cannot be called."""

    def __init__(self, name: str, given: str) -> None:
        super().__init__(
            name, f"a kernel is a function of the op's arguments, not {given}. Pass a Python function, or a C++ "
            "function of an opsmith.extension"
        )  # fmt: skip


class KernelSignatureError(RegistrationError, TypeError):
    """A kernel whose parameters or types are not those that the op calls it with."""


class InlineKernelError(RegistrationError):
    """inline=True for a kernel that torch.compile cannot trace."""

    def __init__(self, name: str, what: str, function: Callable[..., Any] | None = None) -> None:
        super().__init__(name, f"inline=True lets torch.compile see Triton kernels, {what}", function)


class SavesMissingError(RegistrationError, TypeError):
    """A C++ backward kernel without `saves`."""

    def __init__(self, name: str, accepted: Sequence[str]) -> None:
        super().__init__(
            name, 'a C++ backward kernel needs saves=("x", ...), the names of what it takes after the gradients. There '
            f"are {listed(accepted)}"
        )  # fmt: skip


class UnknownSaveError(RegistrationError):
    """A backward kernel that asks for something that the op does not have."""

    def __init__(self, name: str, asked: str, accepted: Sequence[str], function: Callable[..., Any] | None) -> None:
        super().__init__(
            name, f"the backward kernel asks for {asked!r}, which is neither an argument nor a result. There are "
            f"{listed(accepted)}",
            function,
        )  # fmt: skip


class GradientTakenError(RegistrationError):
    """A second gradient for an op that has one."""

    def __init__(self, name: str, method: str) -> None:
        super().__init__(name, f"its gradient is already written by {method}; use one of the two")


class KeywordOnlyTensorError(RegistrationError, TypeError):
    """register_autograd for an op with a keyword-only tensor."""

    def __init__(self, name: str, argument: str, reference: Callable[..., Any]) -> None:
        super().__init__(
            name, f"register_autograd supports no gradient for a keyword-only tensor, and {argument!r} is one. Make it "
            "positional, or write the gradient with register_backward",
            reference,
        )  # fmt: skip


class AutocastPolicyError(RegistrationError):
    """An autocast policy that does not exist."""

    def __init__(self, name: str, policy: object, accepted: Sequence[str]) -> None:
        super().__init__(
            name, f"autocast={policy!r} is not one of {listed(accepted)}. For a fixed dtype call "
            "op.register_autocast(device, dtype)"
        )  # fmt: skip


class AutocastDtypeError(RegistrationError, TypeError):
    """register_autocast with something other than a dtype."""

    def __init__(self, name: str, given: str) -> None:
        super().__init__(name, f"register_autocast takes a torch.dtype, not {given}. Pass torch.float16, for example")


class NumbaKernelTypeError(RegistrationError, TypeError):
    """numba_kernel with something other than a kernel of Numba."""

    def __init__(self, given: str) -> None:
        super().__init__(
            "numba_kernel", f"it takes what @numba.cuda.jit returns for a function, not {given}. Write "
            "@opsmith.numba_kernel above @numba.cuda.jit"
        )  # fmt: skip


class NumbaDeviceFunctionError(RegistrationError, TypeError):
    """numba_kernel with a device function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(
            "numba_kernel", f"{described(function)} is a device function (device=True), which kernels call and which "
            "cannot be launched. Leave device=True out, or @opsmith.numba_kernel",
            function,
        )  # fmt: skip


class NumbaStreamError(RegistrationError):
    """A function that launches a Numba kernel on Numba's own stream."""

    def __init__(self, name: str, function: Callable[..., Any], kernel: Callable[..., Any]) -> None:
        called = kernel.__name__
        super().__init__(
            name, f"{described(function)} launches the Numba kernel {described(kernel)} on Numba's own stream, which "
            f"does not wait for torch's work, nor torch for it. Launch it on torch's stream: {called} = "
            f"opsmith.numba_kernel({called}), or write @opsmith.numba_kernel above its @numba.cuda.jit",
            function,
        )  # fmt: skip


class DispatcherError(RegistrationError, RuntimeError):
    """torch's dispatcher, or opsmith's C++ runtime, refused a registration."""
