"""Swish: the activation, with a fixed beta."""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.swish import swish


class Swish(nn.Module):
    """y = x * sigmoid(beta * x), for x [...] and y [...]: torch.nn.SiLU if beta is 1."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = swish(x, self.beta)
        return y

    def extra_repr(self) -> str:
        return f"beta={self.beta}"
