"""opsmith turns a kernel into a complete PyTorch operator.

Public names are imported on first use: `opsmith --help` does not wait for torch, and `opsmith doctor` works where torch
is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from .benchmark import bench
    from .checks import check
    from .emulator import emulate
    from .errors import KernelFault, OpsmithError, OpsmithWarning
    from .generate.pointwise import pointwise
    from .generate.rowwise import rowwise
    from .kernels.cuda_source import cuda_source
    from .kernels.extension import extension
    from .kernels.gpu import gpu_of
    from .kernels.numba import numba_kernel
    from .operator.op import Op, op
    from .operator.registry import get
    from .operator.samples import Cost, Sample

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
    "gpu_of",
    "numba_kernel",
    "op",
    "pointwise",
    "rowwise",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Cost": ".operator.samples",
        "KernelFault": ".errors",
        "Op": ".operator.op",
        "OpsmithError": ".errors",
        "OpsmithWarning": ".errors",
        "Sample": ".operator.samples",
        "bench": ".benchmark.run",
        "check": ".checks.run",
        "cuda_source": ".kernels.cuda_source",
        "emulate": ".emulator",
        "extension": ".kernels.extension",
        "get": ".operator.registry",
        "gpu_of": ".kernels.gpu",
        "numba_kernel": ".kernels.numba",
        "op": ".operator.op",
        "pointwise": ".generate.pointwise",
        "rowwise": ".generate.rowwise",
    },
)
