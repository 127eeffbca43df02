"""opsmith turns a kernel into a complete PyTorch operator.

What is public is imported when it is first used, not before: `opsmith --help` need not wait for torch, `opsmith doctor`
answers where torch is broken, and `opsmith.ops` costs those who use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy

if TYPE_CHECKING:
    from .bench import bench
    from .checks import check
    from .emulator import emulate
    from .errors import KernelFault, OpsmithError, OpsmithWarning
    from .kernels.cuda_source import cuda_source
    from .kernels.extension import extension
    from .kernels.numba import numba_kernel
    from .op import Op, get, op
    from .pointwise import pointwise
    from .samples import Cost, Sample

__version__ = "0.1.0"
__all__ = [
    "Cost",
    "KernelFault",
    "Op",
    "OpsmithError",
    "OpsmithWarning",
    "Sample",
    "bench",
    "check",
    "cuda_source",
    "emulate",
    "extension",
    "get",
    "numba_kernel",
    "op",
    "pointwise",
]

_HOMES = {
    "Cost": "samples",
    "KernelFault": "errors",
    "Op": "op",
    "OpsmithError": "errors",
    "OpsmithWarning": "errors",
    "Sample": "samples",
    "bench": "bench",
    "check": "checks",
    "cuda_source": "kernels.cuda_source",
    "extension": "kernels.extension",
    "emulate": "emulator",
    "get": "op",
    "numba_kernel": "kernels.numba",
    "op": "op",
    "pointwise": "pointwise",
}


lazy(__name__, _HOMES)
