"""Square: the square as an activation."""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.square import square


class Square(nn.Module):
    """y = x * x, for x [...] and y [...]: torch.square."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = square(x)
        return y
