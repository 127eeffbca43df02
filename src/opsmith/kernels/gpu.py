"""opsmith.gpu_of: the GPU that a kernel is launched on."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..launch.gpu import Gpu
from . import emulation


def gpu_of(tensor: torch.Tensor) -> Gpu:
    """The GPU that holds a tensor; for a CPU tensor, whose kernels are emulated or recorded, the one that they would
    run on. A kernel that plans its launches by these numbers can be built ahead of time for other GPUs."""
    return _properties(tensor.get_device()) if tensor.is_cuda else emulation.state.settings.gpu


@functools.cache
def _properties(index: int) -> Gpu:
    found: Any = torch.cuda.get_device_properties(index)
    shared = found.shared_memory_per_block_optin
    return Gpu(found.name, f"sm_{found.major}{found.minor}", found.multi_processor_count, shared)
