"""mish: x * tanh(softplus(x))."""

from __future__ import annotations

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, unary_samples


@opsmith.pointwise("opsmith::mish")
def mish(x: Tensor) -> Tensor:
    """y = x * tanh(softplus(x)), for x [...] and y [...]: torch.nn.functional.mish(x)."""
    return torch.nn.functional.mish(x)


mish.register_samples(unary_samples)


@mish.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=7)
