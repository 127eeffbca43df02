"""add_two_: two more in every element, in place."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::add_two_", mutates_args=("x",))
def add_two_(x: Tensor) -> None:
    """x <- x + 2, for x [...], which is returned: x.add_(2)."""
    x.add_(2)


@add_two_.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x,), name=name)


@add_two_.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=1)
