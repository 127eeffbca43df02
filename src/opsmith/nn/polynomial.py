"""Polynomial: a cubic activation with learnable coefficients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops.polynomial import polynomial


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
