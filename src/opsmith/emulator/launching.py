"""One launch on the CPU: its memory, its blocks, its printed output, and the fault that it may end in."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence

from ..errors import EmulationError
from ..kernels.emulation import Settings
from . import limits
from .faults import fault_of
from .library import Library, runtime
from .memory import GuardedMemory, Piece
from .structures import CONSTANT, IN_ORDER, PRINTED, TENSOR, Dim, Fault, Launch, Region, array

Extent = tuple[int, int, int]

_NO_RESOURCES = 15  # FaultKind: the machine's fault, not the kernel's
_POLL_SECONDS = 0.05  # how long printed output, and Ctrl-C, may have to wait


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
    """Run a kernel to its end. Raises KernelFault, and LaunchConfigurationError for a launch that a GPU refuses.

    `entry` is the address of the function that enters the kernel, `arguments` that of the array of the parameters'
    addresses, as for cuLaunchKernel. A checked launch works on copies of the tensors: `relocate` is called with a
    function from an address to that of the copy, and applies it to every pointer among the parameters. `readable` is
    further memory that the kernel may read, as its first address and the one after its last.
    """
    grid, block, shared_bytes = geometry
    limits.require(kernel, library, entry, block, shared_bytes)
    guarded = GuardedMemory(pieces if settings.checks else ())
    relocate(guarded.address)
    regions = [
        *(Region(span.address, span.address + span.size, TENSOR, n) for n, span in enumerate(guarded.spans)),
        *library.variables,
        *([Region(*readable, CONSTANT, 0)] if readable else []),
    ]
    region_array, fault = array(Region, regions), Fault()
    seed = IN_ORDER if settings.seed is None else settings.seed
    described = Launch(
        entry, arguments, Dim(*grid), Dim(*block), shared_bytes, settings.checks,
        len(os.sched_getaffinity(0)), seed, settings.seconds, ctypes.addressof(region_array),
        len(regions), ctypes.addressof(library.shared), library.shared_count, library.marker,
        ctypes.addressof(fault),
    )  # fmt: skip
    kind = _run(described)
    if kind == _NO_RESOURCES:
        raise EmulationError(kernel, fault.words.decode())
    if kind:
        raise fault_of(kernel, library, fault, guarded.descriptions, settings.seconds)
    guarded.write_back()


def _run(launch: Launch) -> int:
    """The kind of the fault that the launch ends in; 0 for none. Kernels' printed output appears meanwhile."""
    native = _native()
    place = ctypes.c_void_p()
    try:
        kind: int = native.opsmith_begin(ctypes.byref(launch), ctypes.byref(place), _POLL_SECONDS)
        while kind < 0:
            if kind == PRINTED:
                size = ctypes.c_uint64()
                text = ctypes.string_at(native.opsmith_printed(place, ctypes.byref(size)), size.value)
                print(text.decode(errors="replace"), end="")
            kind = native.opsmith_await(ctypes.byref(place), _POLL_SECONDS)
    except BaseException:
        native.opsmith_stop(ctypes.byref(place))  # its workers must not go on with memory that is freed
        raise
    return kind


@functools.cache
def _native() -> ctypes.CDLL:
    native = runtime()
    native.opsmith_begin.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double)
    native.opsmith_await.argtypes = (ctypes.c_void_p, ctypes.c_double)
    native.opsmith_printed.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    native.opsmith_printed.restype = ctypes.c_void_p
    return native
