"""One launch on the CPU: its memory, its blocks, and the fault it may end in."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence

from ..errors import EmulationError
from ..kernels.emulation import Settings
from . import limits
from .faults import fault_of
from .library import Library
from .memory import GuardedMemory, Piece
from .running import run
from .structures import CONSTANT, IN_ORDER, NO_RESOURCES, TENSOR, Dim, Fault, Launch, Region, array

Extent = tuple[int, int, int]


def launch(
    kernel: str,
    library: Library,
    entry: int,
    geometry: tuple[Extent, Extent, int],
    arguments: int,
    pieces: Sequence[Piece],
    relocate: Callable[[Callable[[int], int]], None],
    settings: Settings,
    readable: tuple[int, int] | None = None,
) -> None:
    """Runs a kernel to its end, or raises KernelFault; LaunchConfigurationError for what a GPU would not launch.

    `entry` is the address of the function that enters it, `arguments` that of the array of the parameters' addresses,
    as cuLaunchKernel takes it. A checked launch works on copies of the tensors: `relocate` is given a function from an
    address to that of the copy, to be applied to every pointer among the parameters. `readable` is memory, from one
    address to another, that the kernel may read besides.
    """
    limits.require(kernel, library, entry, geometry[1], geometry[2])
    guarded = GuardedMemory(pieces) if settings.checks else None
    regions = [] if guarded is None else _regions(guarded)
    if guarded is not None:
        relocate(guarded.address)
    fault = Fault()
    regions += library.variables
    if readable:
        regions.append(Region(*readable, CONSTANT, 0))
    given = array(Region, regions)
    grid, block, shared_bytes = geometry
    seed = IN_ORDER if settings.seed is None else settings.seed
    described = Launch(
        entry, arguments, Dim(*grid), Dim(*block), shared_bytes, settings.checks,
        len(os.sched_getaffinity(0)), seed, settings.seconds, ctypes.addressof(given),
        len(regions), ctypes.addressof(library.shared), library.shared_count, library.marker,
        ctypes.addressof(fault),
    )  # fmt: skip
    kind = run(described)
    if kind == NO_RESOURCES:
        raise EmulationError(kernel, fault.words.decode())
    if kind:
        raise fault_of(kernel, library, fault, _told(pieces, guarded), settings.seconds)
    if guarded is not None:
        guarded.write_back()


def _regions(guarded: GuardedMemory) -> list[Region]:
    """Disjoint pieces of memory: the copies of the tensors."""
    return [
        Region(span.address, span.address + span.end - span.begin, TENSOR, number)
        for number, span in enumerate(guarded.spans)
    ]


def _told(pieces: Sequence[Piece], guarded: GuardedMemory | None) -> list[str]:
    """What messages call each of these regions."""
    told = []
    for span in guarded.spans if guarded is not None else ():
        inside = [str(each) for each in pieces if each.begin < each.end and span.begin <= each.begin < span.end]
        told.append(" and ".join(dict.fromkeys(inside)))
    return told
