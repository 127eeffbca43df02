"""The kernel of doctor's Triton probe: y = x + 0.5. In a file of its own, since Triton reads a kernel's source."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def add_half(x: Any, y: Any, n: Any, BLOCK: tl.constexpr) -> None:
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 0.5, mask=i < n)
