"""Probe: opsmith itself declares an op and differentiates it, and tells by which tier and why."""

from __future__ import annotations

from ..finding import Finding


def runtime() -> Finding:
    import torch

    from .... import __version__
    from .... import runtime as tiers
    from ....op import Op

    def cube(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    op = Op("opsmith_doctor::cube", cube)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    op(x).sum().backward()
    tier = op.default.forward.attachment.tier
    what = f"{__version__} on the {'C++' if tier == 'native' else 'Python'} tier ({tiers.reason()})"
    if x.grad is None or x.grad.tolist() != [3.0, 12.0]:
        return Finding("broken", f"{what}: the gradient of a cube is wrong")
    if tier != "native" and tiers._asked() is None:
        return Finding("missing", what)
    return Finding("ok", f"{what}; differentiated an op")
