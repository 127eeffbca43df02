"""The host reads a number from a tensor."""

from __future__ import annotations

from torch import Tensor

from ._doubled import declared, launch


def kernel(x: Tensor) -> Tensor:
    return launch(x) if x.sum().item() < 1e30 else x * 2


op = declared(__name__, kernel)
