"""Probe: opsmith declares an op and differentiates it; reports which tier served it and why."""

from __future__ import annotations

import os

import torch

from .... import __version__
from .... import runtime as tiers
from ....operator.op import op as declare
from ..finding import Finding


def cube(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


def runtime() -> Finding:
    op = declare("opsmith_doctor::cube")(cube)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    op(x).sum().backward()
    native = op._families.default.forward.attachment.tier == "native"
    what = f"{__version__} on the {'C++' if native else 'Python'} tier ({tiers.reason()})"
    if x.grad is None or x.grad.tolist() != [3.0, 12.0]:
        return Finding("broken", f"{what}: the gradient of a cube is wrong")
    if not native and not os.environ.get(tiers.VARIABLE):
        return Finding("missing", what)
    return Finding("ok", what, "declared and differentiated an op")
