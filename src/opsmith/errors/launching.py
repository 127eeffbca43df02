"""Kernels in CUDA C++, Triton and Numba, and the CUDA driver: finding a kernel, launching it, its arguments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from .base import LocatedError, listed

_PREVIOUS_KERNEL = (
    "An earlier kernel caused this. Run the program with CUDA_LAUNCH_BLOCKING=1 to see which, or under "
    "compute-sanitizer to see its line. No further CUDA work is possible in this process."
)
_REMEDIES = {
    1: "Compare the launch configuration with the kernel's attributes, cu.kernel.attributes.",
    2: "Free GPU memory: torch.cuda.empty_cache() returns what torch holds but does not use.",
    209: "Compile for this GPU: remove -arch from the options, or name the GPU's own architecture.",
    701: "Use a smaller block, or limit the kernel's registers with __launch_bounds__(threads).",
    **dict.fromkeys((214, 700, 702, 710, 714, 715, 716, 717, 718, 719), _PREVIOUS_KERNEL),
}
"""By the code of the CUDA error."""
_OTHER_REMEDY = "CUDA's documentation explains the code under CUresult; `opsmith doctor` tests the driver and the GPUs."


class NoGpuError(LocatedError, RuntimeError):
    """A launch, or another operation that needs a GPU, on a machine without one."""

    def __init__(self, what: str, reason: str, remedy: str) -> None:
        super().__init__(f"{what}: {reason}.\n{remedy}")


class LanguageMissingError(LocatedError, ImportError):
    """A kernel is written in a language that is not installed."""

    def __init__(self, kernel: str, language: str, package: str) -> None:
        self.package = package
        super().__init__(
            f"{kernel} is written in {language}, and there is no package {package} in this Python.\n"
            f"Install it:  pip install {package}"
        )


class CudaDriverError(LocatedError, RuntimeError):
    """The CUDA driver refused a call. `code` is the number of the CUDA error."""

    def __init__(self, what: str, code: int, reason: str, declared: str = "") -> None:
        self.code = code
        remedy = _REMEDIES.get(code, _OTHER_REMEDY)
        super().__init__(f"{what} failed: {reason} (CUDA error {code}).\n{remedy}", declared)


class LaunchError(CudaDriverError):
    """The CUDA driver refused a launch, or reports at a launch what an earlier kernel did wrong."""

    def __init__(self, kernel: str, configuration: str, code: int, reason: str, declared: str = "") -> None:
        super().__init__(f"{kernel}: the launch with {configuration}", code, reason, declared)


class NumbaLaunchError(LocatedError, RuntimeError):
    """Numba could not compile or launch a kernel."""

    def __init__(self, kernel: str, configuration: str, reason: str) -> None:
        super().__init__(
            f"{kernel}: the launch with {configuration} failed. Numba reports:\n{reason}\nInside `with "
            "opsmith.emulate():` the kernel runs on CPU tensors as plain Python, where a debugger stops."
        )


class KernelNotFoundError(LocatedError, AttributeError, KeyError):
    """A kernel name that is not in the CUDA source."""

    def __init__(self, name: str, where: str, kernels: Sequence[str], note: str = "") -> None:
        close = difflib.get_close_matches(name.partition("<")[0], [each.partition("<")[0] for each in kernels], 1)
        note = note or (f"Did you mean {close[0]!r}?" if close else "")
        found = f"{where} has no __global__ kernel {name!r}; it has {listed(kernels)}.{note and ' ' + note}"
        super().__init__(found)


class AmbiguousKernelError(LocatedError, TypeError):
    """A kernel name that does not select one kernel: a template without arguments that fit, or an overloaded name."""

    def __init__(self, kernel: str, where: str, what: str, remedy: str, declared: str = "") -> None:
        super().__init__(f"{kernel} of {where} {what}.\n{remedy}", declared)


class LaunchConfigurationError(LocatedError, ValueError):
    """A grid, block or amount of shared memory that no launch, or no launch of this kernel on this GPU, can have."""

    def __init__(self, kernel: str, what: str, declared: str = "") -> None:
        super().__init__(f"{kernel}: {what}.", declared)


class KernelArgumentError(LocatedError, TypeError):
    """An argument of a launch has a type that the kernel's parameter does not take."""

    def __init__(self, kernel: str, what: str, declared: str) -> None:
        super().__init__(f"{kernel}: {what}.", declared)


class KernelValueError(LocatedError, ValueError):
    """An argument of a launch has the right type, but a value, layout or device that the kernel does not take."""

    def __init__(self, kernel: str, what: str, declared: str = "") -> None:
        super().__init__(f"{kernel}: {what}.", declared)


class ConstantError(LocatedError, ValueError):
    """A __constant__ variable was given a value that it cannot hold, or cannot be set now."""

    def __init__(self, where: str, name: str, what: str, declared: str = "") -> None:
        super().__init__(f"{where}: the __constant__ {name!r} {what}.", declared)
