"""add_two: every element and two."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith
from opsmith.kernels import Deferred
from opsmith.kernels.languages import NUMBA

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::add_two")
def add_two(x: Tensor) -> Tensor:
    """y = x + 2, for x [...] and y [...]. Integers stay integers."""
    return x + 2


# The gradient passes through as it is, which the generated backward kernel does.
add_two.register_kernel("cuda", Deferred(f"{__package__}.numba_kernel", "forward", NUMBA), name="numba")


@add_two.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x,), name=name)


@add_two.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=1)
