"""An operator whose gradient is right and whose tangent is zero, as of a gradient that is recorded by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from opsmith import Sample

_library = torch.library.Library("faulty_elsewhere", "DEF")
_library.define("cubed(Tensor x) -> Tensor")


def reference(x: Tensor) -> Tensor:
    return x**3


def _cubed(x: Tensor) -> Tensor:
    entered = x.clone()
    left = entered * 0 + (x.detach() ** 3)
    if left.requires_grad:
        given: list[Tensor] = []
        left.register_hook(given.append)
        entered.register_hook(lambda _: given.pop() * 3 * x.detach() ** 2)
    return left


_library.impl("cubed", _cubed, "CompositeImplicitAutograd")


def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(4, 6, device=device, dtype=dtype),), name="4 x 6")
