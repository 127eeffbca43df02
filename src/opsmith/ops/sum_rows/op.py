"""sum_rows: the sum of each row."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, unary_samples


@opsmith.rowwise("opsmith::sum_rows")
def sum_rows(x: Tensor) -> Tensor:
    """y = sum(x) over the last dimension, for x [..., columns] and y [...]: x.sum(-1)."""
    return x.sum(-1)


@sum_rows.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield from unary_samples(device, dtype)


@sum_rows.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, written=x[..., :1].nbytes, flops=1)
