"""The gradient of a square with its factor of two forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import opsmith


@opsmith.op("faulty::wrong_gradient")
def op(x: torch.Tensor) -> torch.Tensor:
    return x * x


@op.register_backward("cpu")
@op.register_backward("cuda")
def _(grads: tuple[torch.Tensor], x: torch.Tensor, *, needs: Any) -> torch.Tensor:
    return grads[0] * x


@op.register_samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield opsmith.Sample(args=(torch.randn(5, 7, device=device, dtype=dtype),), name="5x7")
