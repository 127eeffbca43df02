"""One launch on the CPU: its memory, its blocks, and the fault it may end in."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kernels.emulation import Settings
from .faults import fault_of
from .library import Library, runtime
from .memory import GuardedMemory, extent
from .structures import IN_ORDER, TENSOR, Dim, Fault, Launch, Region

Extent = tuple[int, int, int]


def launch(
    kernel: str,
    library: Library,
    spelling: str,
    geometry: tuple[Extent, Extent, int],
    arguments: int,
    tensors: Sequence[tuple[str, torch.Tensor]],
    relocate: Callable[[Callable[[int], int]], None],
    settings: Settings,
) -> None:
    """Runs a kernel to its end, or raises KernelFault.

    `arguments` is the address of the array of the parameters' addresses, as cuLaunchKernel takes it. A checked launch
    works on copies of the tensors: `relocate` is given a function from an address to that of the copy, to be applied to
    every pointer among the parameters.
    """
    guarded = GuardedMemory([tensor for _, tensor in tensors]) if settings.checks else None
    regions, told = _regions(tensors, guarded)
    if guarded is not None:
        relocate(guarded.address)
    fault = Fault()
    given = _array(Region, [*regions, *library.variables])
    shared = _array(Region, library.shared)
    marker = ctypes.cast(library.handle.opsmith_shared_marker, ctypes.c_void_p).value
    grid, block, shared_bytes = geometry
    seed = IN_ORDER if settings.seed is None else settings.seed
    described = Launch(
        library.entry(spelling), arguments, Dim(*grid), Dim(*block), shared_bytes, settings.checks,
        len(os.sched_getaffinity(0)), seed, settings.seconds, ctypes.addressof(given),
        len(regions) + len(library.variables), ctypes.addressof(shared), len(library.shared), marker,
        ctypes.addressof(fault),
    )  # fmt: skip
    if runtime().opsmith_emulate(ctypes.byref(described)):
        raise fault_of(kernel, library, fault, told, settings.seconds)
    if guarded is not None:
        guarded.write_back()


def _regions(
    tensors: Sequence[tuple[str, torch.Tensor]], guarded: GuardedMemory | None
) -> tuple[list[Region], list[str]]:
    """Disjoint pieces of memory, and what messages call each."""
    regions: list[Region] = []
    told: list[str] = []
    if guarded is None:
        return regions, told
    for number, span in enumerate(guarded.spans):
        regions.append(Region(span.address, span.address + span.end - span.begin, TENSOR, number))
        inside = [
            f"{name} ({str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}, {end - begin} bytes)"
            for name, tensor in tensors
            if tensor.numel() and span.begin <= (begin := extent(tensor)[0]) < span.end and (end := extent(tensor)[1])
        ]
        told.append(" and ".join(dict.fromkeys(inside)))
    return regions, told


def _array(kind: type[Any], items: Sequence[Any]) -> Any:
    return (kind * max(len(items), 1))(*items)
