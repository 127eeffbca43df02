"""What a kernel can be written in: Python that launches Triton, Numba or CUDA C++, or C++ on torch's stable ABI."""

from __future__ import annotations

from .deferred import Deferred
from .kernel import GeneratedKernel, Kernel, NativeKernel, PythonKernel
from .native import NativeFunction, NativeLibrary, NativeOperator

__all__ = [
    "Deferred",
    "GeneratedKernel",
    "Kernel",
    "NativeFunction",
    "NativeKernel",
    "NativeLibrary",
    "NativeOperator",
    "PythonKernel",
]
