"""What a kernel can be written in: Python that launches Triton, Numba or CUDA C++, or C++ on torch's stable ABI."""

from __future__ import annotations

from .kernel import GeneratedKernel, Kernel, NativeKernel, PythonKernel
from .languages import Deferred
from .native import NativeFunction, NativeOperator

__all__ = [
    "Deferred",
    "GeneratedKernel",
    "Kernel",
    "NativeFunction",
    "NativeKernel",
    "NativeOperator",
    "PythonKernel",
]
