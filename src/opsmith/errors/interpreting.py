"""Kernels written in Triton and Numba: what they are missing, launching them, running them on the CPU."""

from __future__ import annotations

from .base import OpsmithError


class LanguageMissingError(OpsmithError, ImportError):
    """A kernel is asked for whose language is not installed."""

    def __init__(self, kernel: str, language: str, package: str) -> None:
        self.package = package
        super().__init__(
            f"{kernel} is written in {language}, and there is no package {package} in this Python.\n"
            f"Install it:  pip install {package}"
        )


class CpuTensorError(OpsmithError, ValueError):
    """A kernel for a GPU was launched with tensors of the CPU, outside of opsmith.emulate."""

    def __init__(self, kernel: str, what: str) -> None:
        super().__init__(
            f"{kernel} runs on a GPU, but {what}. Move the tensors there, x = x.cuda(), or run the op that launches it "
            "on the CPU inside `with opsmith.emulate():`."
        )


class NumbaLaunchError(OpsmithError, RuntimeError):
    """Numba could not compile or launch a kernel."""

    def __init__(self, kernel: str, geometry: str, words: str) -> None:
        super().__init__(f"{kernel}: the launch with {geometry} failed. Numba says:\n{words}")


class EmulationError(OpsmithError, RuntimeError):
    """A kernel cannot be run on the CPU, or failed there."""

    def __init__(self, kernel: str, what: str) -> None:
        super().__init__(f"{kernel}, emulated on the CPU: {what}.")


class OutOfBoundsError(EmulationError, IndexError):
    """An emulated kernel reaches for memory that is not a tensor's of its launch."""

    def __init__(self, kernel: str, where: str, guard: str) -> None:
        super().__init__(
            kernel, f"{where}. On a GPU that would read or overwrite whatever lies there. Guard the access: {guard}"
        )
