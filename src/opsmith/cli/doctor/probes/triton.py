"""Probe: Triton runs a kernel, on the GPU where there is one, else in its interpreter."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version

from ..cuda_driver import gpus
from ..finding import Finding


def triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        return Finding("missing", "no package triton in this Python")
    device = "cuda" if gpus() else "cpu"
    import torch

    what = version("triton")
    if device == "cuda" and torch.version.cuda is None:
        return Finding("broken", f"{what}, but torch is built without CUDA", fix="see CUDA in torch")
    from ....kernels.triton_interpreter import Launcher
    from .triton_kernel import add_half

    x = torch.arange(4.0, device=device)
    y = torch.empty_like(x)
    Launcher(add_half)[(1,)](x, y, 4, BLOCK=4)
    if y.tolist() != [0.5, 1.5, 2.5, 3.5]:
        return Finding("broken", f"{what}: a kernel should give [0.5, 1.5, 2.5, 3.5] and gives {y.tolist()}")
    where = "on the GPU" if device == "cuda" else "in its interpreter (there is no GPU)"
    return Finding("ok", what, f"ran a kernel {where}")
