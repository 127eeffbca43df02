"""Probe: Numba runs a CUDA kernel on torch tensors, on the GPU where there is one, else in its simulator."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version

from ..cuda_driver import gpus
from ..finding import Finding


def numba() -> Finding:
    for module, package in (("numba", "numba"), ("numba_cuda", "numba-cuda")):
        if importlib.util.find_spec(module) is None:
            return Finding("missing", f"no package {package} in this Python")
    what = f"numba-cuda {_version('numba-cuda')}, NumPy {_version('numpy')}"
    import torch

    on_gpu = bool(gpus())
    if on_gpu and torch.version.cuda is None:
        return Finding("broken", f"{what}, but torch is built without CUDA", fix="see CUDA in torch")
    from ....kernels import emulation
    from ....kernels.numba import supply_row_stack
    from .numba_kernel import add_half

    if supply_row_stack():
        what += ", which has no np.row_stack: numba-cuda looks for it, and opsmith lends it"
    x = torch.arange(4.0, device="cuda" if on_gpu else "cpu")
    y = torch.zeros_like(x)
    if on_gpu:
        add_half[1, 4](x, y)
    else:
        with emulation.entered(emulation.Settings()):
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
