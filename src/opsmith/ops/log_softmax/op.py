"""log_softmax: logarithms of exponentials that sum to one along the last dimension."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, unary_samples


@opsmith.rowwise("opsmith::log_softmax")
def log_softmax(x: Tensor) -> Tensor:
    """y = x - log(sum(exp(x))) over the last dimension, for x [..., columns] and y [..., columns]."""
    return torch.log_softmax(x, -1)


@log_softmax.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield from unary_samples(device, dtype)


@log_softmax.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, written=x.nbytes, flops=5)
