"""Launches that a GPU refuses although the kernel is right: blocks and shared memory beyond its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import LaunchConfigurationError
from ..kernels.configuration import MAX_BLOCK, MAX_GRID, MAX_THREADS
from .library import Library

STATIC_SHARED_BYTES = 48 << 10
"""The most static shared memory that a kernel may declare, on any GPU: ptxas refuses more."""
SHARED_BYTES = 227 << 10
"""The most shared memory of a block, static and dynamic together, on an H100 or H200 (sm_90)."""


def require(kernel: str, library: Library, entry: int, block: tuple[int, int, int], shared: int) -> None:
    """Raise LaunchConfigurationError for a launch that a GPU refuses; `entry` is the kernel's address."""
    threads, bound = math.prod(block), library.launch_bound(entry)
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


def refusal(
    kernel: str, library: Library, entry: int, grid: Sequence[int], block: Sequence[int], shared: int
) -> str | None:
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
        f"{kernel} was not launched with grid {tuple(grid)}, block {tuple(block)} and {shared} bytes of dynamic shared "
        f"memory on the emulated GPU: {code}; it takes at most {MAX_THREADS} threads a block and {most_shared} bytes "
        f"of dynamic shared memory, and a grid {MAX_GRID} of blocks {MAX_BLOCK}"
    )
