"""opsmith turns a kernel into a complete PyTorch operator.

What is public is imported when it is first used, not before: `opsmith --help` need not wait for torch, `opsmith doctor`
answers where torch is broken, and `opsmith.ops` costs those who use it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    "check": "checks",
    "cuda_source": "kernels.cuda_source",
    "extension": "kernels.extension",
    "emulate": "emulator",
    "get": "op",
    "numba_kernel": "kernels.numba",
    "op": "op",
    "pointwise": "pointwise",
}


class _Package(ModuleType):
    """This module, with names that are looked up in their homes."""

    def __getattr__(self, name: str) -> Any:
        if home := _HOMES.get(name):
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            setattr(self, name, value)
            return value
        if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the module opsmith.op binds it here as `op`, which is to be the function.
        if _HOMES.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
