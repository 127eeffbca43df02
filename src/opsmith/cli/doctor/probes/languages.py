"""Probes: Triton and Numba run a kernel, on the GPU if there is one, else in the language's own emulator."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ..finding import Finding
from .driver import gpus

if TYPE_CHECKING:
    import torch


def triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        return Finding("missing", "no package triton in this Python")
    import torch

    what, device = version("triton"), "cuda" if gpus() else "cpu"
    if device == "cuda" and torch.version.cuda is None:
        return _without_cuda(what)
    from ....kernels.triton_interpreter import Launcher
    from .triton_kernel import add_half

    x = torch.arange(4.0, device=device)
    y = torch.empty_like(x)
    Launcher(add_half)[(1,)](x, y, 4, BLOCK=4)
    return _finding(what, y, "interpreter")


def numba() -> Finding:
    for module, package in (("numba", "numba"), ("numba_cuda", "numba-cuda")):
        if importlib.util.find_spec(module) is None:
            return Finding("missing", f"no package {package} in this Python")
    import torch

    what, device = f"numba-cuda {_version('numba-cuda')}, NumPy {_version('numpy')}", "cuda" if gpus() else "cpu"
    if device == "cuda" and torch.version.cuda is None:
        return _without_cuda(what)
    from ....kernels import emulation
    from ....kernels.numba import supply_row_stack
    from .numba_kernel import add_half

    if supply_row_stack():
        what += ", which has no np.row_stack: numba-cuda looks for it, and opsmith supplies it"
    x = torch.arange(4.0, device=device)
    y = torch.zeros_like(x)
    if device == "cuda":
        add_half[1, 4](x, y)
    else:
        with emulation.entered(emulation.Settings()):
            add_half[1, 4](x, y)
    return _finding(what, y, "simulator")


def _without_cuda(what: str) -> Finding:
    return Finding("broken", f"{what}, but torch is built without CUDA", fix="see CUDA in torch")


def _finding(what: str, y: torch.Tensor, emulator: str) -> Finding:
    if y.tolist() != [0.5, 1.5, 2.5, 3.5]:
        return Finding("broken", f"{what}: a kernel should give [0.5, 1.5, 2.5, 3.5] and gives {y.tolist()}")
    where = "on the GPU" if y.is_cuda else f"in its {emulator} (there is no GPU)"
    return Finding("ok", what, f"ran a kernel {where}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
