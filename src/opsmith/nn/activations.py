"""Activations: modules of one pass over their input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops.add_two import add_two
from ..ops.mish import mish
from ..ops.polynomial import polynomial
from ..ops.square import square
from ..ops.swish import swish


class AddTwo(nn.Module):
    """y = x + 2, for x [...] and y [...]."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = add_two(x)
        return y


class Mish(nn.Module):
    """y = x * tanh(softplus(x)), for x [...] and y [...]: torch.nn.Mish."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = mish(x)
        return y


class Square(nn.Module):
    """y = x * x, for x [...] and y [...]: torch.square."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = square(x)
        return y


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


class Polynomial(nn.Module):
    """y = a*x^3 + b*x^2 + c*x + d, for x [...] and y [...], with learnable a, b, c, d, each [].

    Its initial values approximate SiLU around zero: x/2 + x^2/4 are the first terms of its Taylor series, and the cubic
    term is 0."""

    def __init__(
        self,
        a: float = 0.0,
        b: float = 0.25,
        c: float = 0.5,
        d: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.initial = (a, b, c, d)
        self.a, self.b, self.c, self.d = (
            nn.Parameter(torch.empty((), device=device, dtype=dtype)) for _ in self.initial
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter, value in zip((self.a, self.b, self.c, self.d), self.initial, strict=True):
            nn.init.constant_(parameter, value)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = polynomial(x, self.a, self.b, self.c, self.d)
        return y

    def extra_repr(self) -> str:
        return "initially {}*x^3 + {}*x^2 + {}*x + {}".format(*self.initial)
