"""The kernel of doctor's Triton probe: y = x + 0.5. In a file of its own, since Triton reads a kernel's source."""

from __future__ import annotations

import triton
import triton.language as tl


# No annotations but Triton's own: it reads them as the arguments' types.
@triton.jit  # type: ignore[untyped-decorator]
def add_half(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 0.5, mask=i < n)
