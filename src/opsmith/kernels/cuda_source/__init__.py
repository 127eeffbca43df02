"""CUDA C++ kernels launched from Python, compiled by NVRTC: opsmith.cuda_source."""

from __future__ import annotations

from typing import Any

from ..substitution import reached
from .attributes import Attributes
from .launch import CompiledKernel, Kernel, Launch
from .source import CompiledSource, CudaSource, cuda_source

__all__ = ["Attributes", "CompiledKernel", "CompiledSource", "CudaSource", "Kernel", "Launch", "cuda_source"]


def used_by(function: Any) -> bool:
    """Whether a function launches kernels of a CudaSource."""
    return bool(reached(function, lambda value: isinstance(value, (CudaSource, Kernel, Launch))))
