"""The kernel of doctor's Numba probe: y = x + 0.5. In a file of its own: the simulator wants `cuda` to be a global."""

from __future__ import annotations

from typing import Any

from numba import cuda


@cuda.jit  # type: ignore[untyped-decorator]
def add_half(x: Any, y: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] + 0.5
