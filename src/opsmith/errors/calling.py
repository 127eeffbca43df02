"""Calling an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import LocatedError, OpsmithError, OpsmithWarning, definition, quoted


def other_version(package: str, built: str, running: str) -> str:
    """What to do where a package's kernels were built with another opsmith than the one that is running."""
    return (
        f"The prebuilt kernels of {package} were built with opsmith {built}, and opsmith {running} is running: "
        "kernels that differ between the two are not found.\n"
        f"Install opsmith {built}:  pip install 'opsmith=={built}'\n"
        f"or ask the author of {package} for a build with opsmith {running}."
    )


class ReferenceRunsWarning(OpsmithWarning):
    """A kernel could not be compiled because a tool is missing, so the plain PyTorch reference runs instead."""

    def __init__(
        self,
        device: str,
        reason: object,
        kernel: str = "pointwise kernels",
        call: str = "",
        cuda: tuple[str, str] | None = None,
        opsmith: tuple[str, str, str] | None = None,
    ) -> None:
        """`call`: of an op whose package has prebuilt kernels, the call that none of them takes. `cuda`: the major
        versions of CUDA that the package's kernels and torch are built for, where they differ. `opsmith`: the arguments
        of other_version, if the package was built with another opsmith."""
        what = f"opsmith cannot compile {kernel} for {device} here"
        to_do = ""
        if cuda and device == "cuda":
            what = f"{kernel} is prebuilt for CUDA {cuda[0]}, torch is built for CUDA {cuda[1]}"
            what = f"{what}, and it cannot be compiled here"
            to_do = f"\nOr install the package's wheel for CUDA {cuda[1]}, or a torch that is built for CUDA {cuda[0]}."
        elif call:
            what = f"{kernel} is not prebuilt for {call} on {device}, and cannot be compiled here"
            to_do = "\nThe package's author can prebuild it: a call like this in the op's samples or its prebuild=."
        if opsmith:
            to_do = f"\n{other_version(*opsmith)}"
        super().__init__(f"{what}, so the plain PyTorch reference runs instead (correct, but slower): {reason}{to_do}")


class ArgumentError(LocatedError, TypeError):
    """An argument is not of the type the op's schema takes."""

    def __init__(self, name: str, schema: str, what: str) -> None:
        super().__init__(f"{name}: {what}.\n  Its signature is {schema}")


class SharedMemoryError(LocatedError, ValueError):
    """Two arguments of an in-place op share memory that it changes."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"{name}: {first} and {second} share memory, which the op changes: its result would depend on the order of "
            f"its steps. Pass a copy: {second} = {second}.clone()."
        )


class DeviceMixError(LocatedError, ValueError):
    """Tensors of one call are on different devices."""

    def __init__(self, name: str, places: dict[str, str]) -> None:
        listed = ", ".join(f"{argument} on {device}" for argument, device in places.items())
        devices = list(dict.fromkeys(places.values()))
        target = next((device for device in devices if device != "cpu"), devices[0])
        stray = next(argument for argument, device in places.items() if device != target)
        super().__init__(
            f"{name}: all tensors of a call must be on one device, but there is {listed}. "
            f"Move them together, for example {stray} = {stray}.to({target!r})."
        )


class KernelResultError(OpsmithError, RuntimeError):
    """A kernel returned something other than what the reference, or the op's register_fake, returns."""

    def __init__(
        self,
        name: str,
        kernel: str,
        what: str,
        expected: str = "the reference",
        function: Callable[..., Any] | None = None,
    ) -> None:
        either = "" if expected == "the reference" else f" If the kernel is right, fix {expected}."
        line = None if function is None else definition(function)
        super().__init__(
            f"{name}: the kernel {kernel} does not return what {expected} does: {what}. A kernel returns fresh "
            f"contiguous tensors of the reference's shapes, dtypes and device.{either}{quoted(line)}"
        )


class UnknownKernelError(LocatedError, KeyError):
    """`using` named a kernel that is not registered."""

    def __init__(self, name: str, kernel: str, known: list[str]) -> None:
        listed = ", ".join(repr(each) for each in known)
        super().__init__(f"{name} has no kernel {kernel!r}; it has {listed}.")


class UnsavedInputError(LocatedError, RuntimeError):
    """The derived gradient needs an input that the op's backward kernel did not ask to be saved."""

    def __init__(self, name: str, inputs: list[str]) -> None:
        listed = ", ".join(inputs)
        super().__init__(
            f"{name}: this gradient is derived from the reference and needs {listed}, but the backward kernel of "
            f"this device does not name {listed} among its parameters, so nothing was saved. Add {listed} to the "
            "parameters of the function given to register_backward."
        )


class InPlaceGradientError(LocatedError, RuntimeError):
    """torch.ops was called in place on a tensor that needs a gradient."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} changes its argument in place, and an argument requires a gradient. torch.ops cannot record "
            "that: call the Op object itself (it keeps the gradient right), or wrap the call in torch.no_grad()."
        )


class OutGradientError(LocatedError, RuntimeError):
    """out= was given while an argument requires a gradient."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: out= cannot be differentiated, and an argument requires a gradient. Leave out= out, or wrap "
            "the call in torch.no_grad()."
        )


class OutArgumentError(LocatedError, ValueError):
    """out= was given to an op without an out= form, or with another number of tensors than the op returns."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}.")


class RedeclaredError(LocatedError, RuntimeError):
    """The op, or its backward kernel, was declared again, and something older was used: the old Op, a graph recorded
    with it, a compiled function."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}, or its backward kernel, has been declared again since. Use the Op of the new declaration; run "
            "the forward pass again for a graph recorded before, and recompile a function compiled before."
        )


class RuntimeTierError(OpsmithError, ValueError):
    """OPSMITH_RUNTIME is set to something that is not a tier."""

    def __init__(self, variable: str, value: str) -> None:
        super().__init__(f"{variable}={value!r} is not a runtime: set 'native' (C++), 'python', or leave it unset.")


class SamplesMissingError(OpsmithError, LookupError):
    """A check, benchmark or demo was asked for, but the op has no samples."""

    def __init__(self, name: str, reference: Callable[..., Any]) -> None:
        super().__init__(
            f"{name} has no samples to run on.{quoted(definition(reference))}\nGive some:\n"
            "    @op.register_samples\n"
            "    def _(device, dtype):\n"
            "        yield opsmith.Sample(args=(torch.randn(64, device=device, dtype=dtype),))"
        )


class InvalidSampleError(OpsmithError, TypeError):
    """A sample is not a call of an op: its arguments are not a tuple, or something other than a sample was yielded."""

    def __init__(self, what: str, function: Callable[..., Any] | None = None) -> None:
        line = quoted(None if function is None else definition(function))
        super().__init__(f"{what} The arguments are a tuple, even if there is only one:  opsmith.Sample((x,)){line}")


class UnknownOpError(LocatedError, LookupError):
    """No op of that name is declared."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(known) if known else "none"
        super().__init__(
            f"No op named {name!r} is declared (declared: {listed}). Import the module that declares it first."
        )
