"""Kernels in CUDA C++ (opsmith.cuda_source), and the CUDA driver: naming a kernel, launching it, its arguments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from .base import OpsmithError, listed

# After one of these the GPU's context is lost; the launch that is told of it may not be the one at fault.
_STICKY = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}


class NoGpuError(OpsmithError, RuntimeError):
    """A launch, or something only a GPU can tell, on a machine where there is none."""

    def __init__(self, what: str, reason: str, remedy: str) -> None:
        super().__init__(f"{what}: {reason}.\n{remedy}")


class CudaDriverError(OpsmithError, RuntimeError):
    """The CUDA driver refused a call."""

    def __init__(self, what: str, code: int, words: str) -> None:
        self.code = code
        super().__init__(f"{what} failed: {words} (CUDA error {code}).")


class LaunchError(CudaDriverError):
    """The CUDA driver refused a launch, or reports at a launch what went wrong before it."""

    def __init__(self, kernel: str, geometry: str, code: int, words: str) -> None:
        super().__init__(f"{kernel}: the launch with {geometry}", code, words)
        if code in _STICKY:
            self.args = (
                f"{self.args[0]}\nThis comes of a kernel that ran before: run the program with CUDA_LAUNCH_BLOCKING=1 "
                "to see which, or under compute-sanitizer to see its line. No further CUDA work is possible in this "
                "process.",
            )


class KernelNotFoundError(OpsmithError, AttributeError, KeyError):
    """A kernel name that is not in the CUDA source."""

    def __init__(self, name: str, where: str, kernels: Sequence[str], note: str = "") -> None:
        close = difflib.get_close_matches(name.partition("<")[0], [each.partition("<")[0] for each in kernels], 1)
        note = note or (f"Did you mean {close[0]!r}?" if close else "")
        super().__init__(f"{where} has no __global__ kernel {name!r}; it has {listed(kernels)}.{note and ' ' + note}")

    def __str__(self) -> str:
        return str(self.args[0])


class TemplateArgumentsError(OpsmithError, TypeError):
    """A kernel template without arguments, or with arguments that the compiler does not take."""

    def __init__(self, kernel: str, where: str, what: str, example: str) -> None:
        super().__init__(f"{kernel} of {where} {what}.\nIt is spelled like this: cu[{example!r}]")


class OverloadedKernelError(OpsmithError, TypeError):
    """Several kernels of one name."""

    def __init__(self, kernel: str, where: str) -> None:
        super().__init__(
            f"{where} has several kernels named {kernel}, and a launch could not tell which is meant. Give each a name "
            "of its own, or make them one template."
        )


class DeviceVariableError(OpsmithError, TypeError):
    """A template instance of a source with __device__ variables that kernels can write."""

    def __init__(self, kernel: str, where: str, variables: Sequence[str]) -> None:
        super().__init__(
            f"{kernel} of {where} is an instance of a template, and the source has __device__ variables that kernels "
            f"may write: {listed(variables)}. Each instance is compiled for itself and would have copies of its own, "
            "which no other kernel sees. Pass a tensor to the kernels instead, or declare const what nothing writes."
        )


class LaunchGeometryError(OpsmithError, ValueError):
    """A grid, a block or an amount of shared memory that no launch, or none of this kernel on this GPU, can have."""

    def __init__(self, kernel: str, what: str) -> None:
        super().__init__(f"{kernel}: {what}.")


class KernelArgumentError(OpsmithError, TypeError):
    """An argument of a launch is not what the kernel's parameter takes."""

    def __init__(self, kernel: str, what: str, signature: str) -> None:
        super().__init__(f"{kernel}: {what}.\n  The kernel is {signature}")


class KernelValueError(OpsmithError, ValueError):
    """An argument of a launch is of the right type, but its value, layout or place is not."""

    def __init__(self, kernel: str, what: str, signature: str) -> None:
        super().__init__(f"{kernel}: {what}.\n  The kernel is {signature}")


class ConstantError(OpsmithError, ValueError):
    """A __constant__ variable was given something it does not hold."""

    def __init__(self, where: str, name: str, what: str) -> None:
        super().__init__(f"{where}: the __constant__ {name!r} {what}.")
