"""swish: x * sigmoid(beta * x)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, unary_samples


@opsmith.pointwise("opsmith::swish")
def swish(x: Tensor, beta: float = 1.0) -> Tensor:
    """y = x * sigmoid(beta * x), for x [...] and y [...]: torch.nn.functional.silu(x) if beta is 1."""
    return x * torch.sigmoid(beta * x)


@swish.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield from unary_samples(device, dtype)
    x = torch.randn(24, 40, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, 1.702), name="beta 1.702")


@swish.register_cost
def cost(x: Tensor, beta: float = 1.0) -> opsmith.Cost:
    return least(x, flops=5)
