"""add_two_: x += 2, in place."""

from __future__ import annotations

from torch import Tensor

import opsmith

from .._elementwise import least, unary_samples


@opsmith.pointwise("opsmith::add_two_", mutates_args=("x",))
def add_two_(x: Tensor) -> None:
    """x <- x + 2, for x [...], which is returned: x.add_(2)."""
    x.add_(2)


add_two_.register_samples(unary_samples)


@add_two_.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=1)
