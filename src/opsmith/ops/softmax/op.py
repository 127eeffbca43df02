"""softmax: exponentials that sum to one along the last dimension."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, unary_samples


@opsmith.rowwise("opsmith::softmax")
def softmax(x: Tensor) -> Tensor:
    """y = exp(x) / sum(exp(x)) over the last dimension, for x [..., columns] and y [..., columns]."""
    return torch.softmax(x, -1)


@softmax.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield from unary_samples(device, dtype)


@softmax.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, written=x.nbytes, flops=5)
