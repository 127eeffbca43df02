"""Probes: torch imports and computes; with a GPU, it computes there too."""

from __future__ import annotations

import importlib.util

from ....toolchain.torch_release import OLDEST, minor_release
from ..finding import Finding
from .driver import gpus


def torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("missing", "no package torch in this Python")
    import torch

    build = _build()
    if torch.version.hip:
        return Finding("broken", f"{build}: ROCm is out of scope for now", fix="pip install --force-reinstall torch")
    if minor_release(torch.__version__) < OLDEST:
        return Finding("broken", f"{build}, which is older than {'.'.join(map(str, OLDEST))}")
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    (x @ x.T).sum().backward()
    if x.grad is None or x.grad.tolist() != [[6.0, 10.0, 14.0], [6.0, 10.0, 14.0]]:
        return Finding("broken", f"{build}: the gradient of a small product is wrong")
    return Finding("ok", build, "differentiated a product")


def gpu() -> Finding:
    if not gpus():
        return Finding("missing", "there is no GPU to run on", fix="see the NVIDIA driver's line")
    import torch

    if torch.version.cuda is None:
        version = torch.__version__.split("+")[0]
        return Finding("missing", _build(), fix=f"pip install --force-reinstall torch=={version}")
    x = torch.arange(1024, dtype=torch.float32, device="cuda")
    total = float((x * 2).sum())
    if total != 1023 * 1024:
        return Finding("broken", f"{_build()}: a sum on {torch.cuda.get_device_name()} is wrong")
    return Finding("ok", _build(), f"summed on {torch.cuda.get_device_name()}")


def _build() -> str:
    import torch

    if torch.version.hip:
        return f"{torch.__version__}, built for ROCm {torch.version.hip}"
    return f"{torch.__version__}, built {f'for CUDA {torch.version.cuda}' if torch.version.cuda else 'without CUDA'}"
