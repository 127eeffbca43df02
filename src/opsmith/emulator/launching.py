"""One launch on the CPU: its limits, its memory, its blocks, its printed output, and the fault that it may end in."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence

from ..errors import EmulationError, LaunchConfigurationError
from ..kernels.clusters import required_cluster
from ..kernels.configuration import MAX_BLOCK, MAX_GRID, MAX_THREADS, Extent, LaunchConfiguration
from ..kernels.emulation import Settings
from .faults import fault_of
from .library import Library, runtime
from .memory import GuardedMemory, Piece
from .structures import CONSTANT, IN_ORDER, PRINTED, TENSOR, Dim, Fault, Launch, Region, array

STATIC_SHARED_BYTES = 48 << 10
"""The most static shared memory that a kernel may declare, on any GPU: ptxas refuses more."""
SHARED_BYTES = 227 << 10
"""The most shared memory of a block, static and dynamic together, on an H100 or H200 (sm_90)."""

_NO_RESOURCES = 15  # FaultKind: the machine's fault, not the kernel's
_POLL_SECONDS = 0.05  # how long printed output, and Ctrl-C, may have to wait


def launch(
    kernel: str,
    library: Library,
    entry: int,
    configuration: LaunchConfiguration,
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
    grid, block, shared_bytes, cluster = configuration
    require(kernel, library, entry, block, shared_bytes)
    declared = library.clusters.get(entry)
    if cluster or declared:
        cluster = required_cluster(kernel, configuration, declared, settings.gpu.arch)
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
        entry, arguments, Dim(*grid), Dim(*block), Dim(*(cluster or (1, 1, 1))), shared_bytes, settings.checks,
        len(os.sched_getaffinity(0)), seed, settings.seconds, ctypes.addressof(region_array),
        len(regions), ctypes.addressof(library.shared), library.shared_count, library.marker,
        ctypes.addressof(fault),
    )  # fmt: skip
    kind = _run(described)
    if kind == _NO_RESOURCES:
        raise EmulationError(kernel, fault.detail.decode())
    if kind:
        raise fault_of(kernel, library, fault, guarded.descriptions, settings.seconds)
    guarded.write_back()


def _run(launch: Launch) -> int:
    """The kind of the fault that the launch ends in; 0 for none. Kernels' printed output appears meanwhile."""
    native = runtime()
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
        native.opsmith_stop(ctypes.byref(place))  # its workers must not continue with memory that is freed
        raise
    return kind


# --- launches that a GPU refuses although the kernel is right ---------------------------------------------------------


def require(kernel: str, library: Library, entry: int, block: Extent, shared: int) -> None:
    """Raise LaunchConfigurationError for a launch that a GPU refuses; `entry` is the kernel's address."""
    threads, bound = math.prod(block), library.launch_bounds.get(entry)
    if bound and threads > bound:
        raise LaunchConfigurationError(
            kernel,
            f"a block of {threads} threads is more than the {bound} that this kernel can have: its __launch_bounds__ "
            f"allow no more. Make the block smaller, or give the kernel __launch_bounds__({threads})",
        )
    declared = library.static_shared(entry)
    static = sum(declared.values())
    if static > STATIC_SHARED_BYTES:
        listed = ", ".join(f"{name} {size}" for name, size in sorted(declared.items(), key=lambda each: -each[1]))
        raise LaunchConfigurationError(
            kernel,
            f"its static __shared__ variables take {static} bytes ({listed}), and a kernel may declare "
            f"{STATIC_SHARED_BYTES}: ptxas refuses more. Declare them extern __shared__ and give the bytes with the "
            f"launch, kernel[grid, block, bytes](...), up to {SHARED_BYTES} a block",
        )
    if static + shared > SHARED_BYTES:
        declared_note = f", of which the kernel itself declares {static}" if static else ""
        raise LaunchConfigurationError(
            kernel,
            f"a block requests {static + shared} bytes of shared memory{declared_note}; an H100 or H200 has "
            f"{SHARED_BYTES} per block, most other GPUs less",
        )


def refusal(kernel: str, library: Library, entry: int, grid: Extent, block: Extent, shared: int) -> str | None:
    """The message of opsmith::launch for a launch that a GPU refuses; None for one that it takes."""
    most_shared = SHARED_BYTES - sum(library.static_shared(entry).values())
    too_large = any(n > most for n, most in zip((*grid, *block), (*MAX_GRID, *MAX_BLOCK), strict=True))
    if too_large or math.prod(block) > MAX_THREADS:
        code = "invalid configuration argument (cudaErrorInvalidConfiguration)"
    elif shared > most_shared:
        code = "invalid argument (cudaErrorInvalidValue)"
    else:
        return None
    return (
        f"{kernel} was not launched with grid {grid}, block {block} and {shared} bytes of dynamic shared "
        f"memory on the emulated GPU: {code}; it takes at most {MAX_THREADS} threads per block and {most_shared} bytes "
        f"of dynamic shared memory, and a grid {MAX_GRID} of blocks {MAX_BLOCK}"
    )
