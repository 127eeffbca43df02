"""The GPU that a kernel is launched on, in the numbers that launches are planned with."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch


class Gpu(NamedTuple):
    """A GPU: its name, its architecture ("sm_90"), its multiprocessors, and the most shared memory of a block."""

    name: str
    arch: str
    multiprocessors: int
    shared_bytes: int


H200 = Gpu("H200", "sm_90", 132, 227 << 10)


def gpu_of(tensor: torch.Tensor) -> Gpu:
    """The GPU that holds a tensor; for a CPU tensor, whose kernels are emulated or recorded, the one that they would
    run on. A kernel that plans its launches by these numbers can be built ahead of time for other GPUs."""
    from . import emulation  # which has a Gpu among its settings

    return _properties(tensor.get_device()) if tensor.is_cuda else emulation.state.settings.gpu


@functools.cache
def _properties(index: int) -> Gpu:
    found: Any = torch.cuda.get_device_properties(index)
    shared = found.shared_memory_per_block_optin
    return Gpu(found.name, f"sm_{found.major}{found.minor}", found.multi_processor_count, shared)
