"""Probe: Numba runs a CUDA kernel, on the GPU where there is one, else in its simulator."""

from __future__ import annotations

import importlib.util
import os
import re
from importlib.metadata import PackageNotFoundError, version

from ..cuda_driver import gpus
from ..finding import Finding


def numba() -> Finding:
    for module, package in (("numba", "numba"), ("numba_cuda", "numba-cuda")):
        if importlib.util.find_spec(module) is None:
            return Finding("missing", f"no package {package} in this Python")
    what = f"numba-cuda {_version('numba-cuda')}, NumPy {_version('numpy')}"
    # The simulator compiles nothing and would not notice.
    if _version("numba-cuda").startswith("0.30.") and _numbers(_version("numpy")) >= (2, 5):
        return Finding(
            "broken",
            f"{what}: this numba-cuda calls np.row_stack, which NumPy 2.5 no longer has",
            fix="pip install 'numpy<2.5'",
        )
    on_gpu = bool(gpus())
    if not on_gpu:
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when numba is imported
    import numpy

    from .numba_kernel import add_half

    x = numpy.arange(4, dtype=numpy.float32)
    y = numpy.zeros_like(x)
    add_half[1, 4](x, y)
    if y.tolist() != [0.5, 1.5, 2.5, 3.5]:
        return Finding("broken", f"{what}: a kernel should give [0.5, 1.5, 2.5, 3.5] and gives {y.tolist()}")
    where = "on the GPU" if on_gpu else "in its simulator (there is no GPU)"
    return Finding("ok", what, f"ran a kernel {where}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))
