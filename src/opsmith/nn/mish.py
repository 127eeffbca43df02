"""Mish: the activation."""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.mish import mish


class Mish(nn.Module):
    """y = x * tanh(softplus(x)), for x [...] and y [...]: torch.nn.Mish."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = mish(x)
        return y
