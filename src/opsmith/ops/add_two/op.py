"""add_two: x + 2."""

from __future__ import annotations

from torch import Tensor

import opsmith
from opsmith.kernels import Deferred
from opsmith.kernels.languages import NUMBA

from .._elementwise import least, unary_samples


@opsmith.pointwise("opsmith::add_two")
def add_two(x: Tensor) -> Tensor:
    """y = x + 2, for x [...] and y [...]. Integers stay integers."""
    return x + 2


# The passthrough gradient needs no kernel.
add_two.register_kernel("cuda", Deferred(f"{__package__}.numba_kernel", "forward", NUMBA), name="numba")


add_two.register_samples(unary_samples)


@add_two.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=1)
