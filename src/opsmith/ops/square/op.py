"""square: x * x."""

from __future__ import annotations

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, unary_samples


@opsmith.pointwise("opsmith::square")
def square(x: Tensor) -> Tensor:
    """y = x * x, for x [...] and y [...]: torch.square(x)."""
    return torch.square(x)


square.register_samples(unary_samples)


@square.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=1)
