"""mish: an element times the tanh of its softplus."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::mish")
def mish(x: Tensor) -> Tensor:
    """y = x * tanh(softplus(x)), for x [...] and y [...]: torch.nn.functional.mish(x)."""
    return torch.nn.functional.mish(x)


@mish.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x,), name=name)


@mish.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=7)
