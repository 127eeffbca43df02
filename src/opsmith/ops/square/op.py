"""square: every element times itself."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::square")
def square(x: Tensor) -> Tensor:
    """y = x * x, for x [...] and y [...]: torch.square(x)."""
    return torch.square(x)


@square.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x,), name=name)


@square.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=1)
