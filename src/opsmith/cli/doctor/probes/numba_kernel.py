"""The kernel of doctor's Numba probe: y = x + 0.5. In a file of its own, since it imports Numba."""

from __future__ import annotations

from typing import Any

from numba import cuda

from ....kernels.numba import numba_kernel


@numba_kernel
@cuda.jit  # type: ignore[untyped-decorator]
def add_half(x: Any, y: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] + 0.5
