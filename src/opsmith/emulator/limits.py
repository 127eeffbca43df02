"""What a GPU would not launch although the kernel is right: blocks and shared memory beyond its limits."""

from __future__ import annotations

import math

from ..errors import LaunchConfigurationError
from .library import Library

STATIC_SHARED_BYTES = 48 << 10
"""What a kernel may declare of static shared memory, on any GPU: ptxas refuses more."""
SHARED_BYTES = 227 << 10
"""What a block may have of shared memory, static and dynamic together, on an H100 or H200 (sm_90)."""


def require(kernel: str, library: Library, entry: int, block: tuple[int, int, int], shared: int) -> None:
    """Raises LaunchConfigurationError for a launch that a GPU refuses; `entry` is the kernel's address."""
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
        told = f", of which the kernel itself declares {static}" if static else ""
        raise LaunchConfigurationError(
            kernel,
            f"{static + shared} bytes of shared memory a block are asked for{told}; an H100 or H200 has {SHARED_BYTES} "
            "a block, most other GPUs have less",
        )
