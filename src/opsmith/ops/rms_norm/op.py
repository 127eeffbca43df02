"""rms_norm: rows divided by the root of their mean square."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, rows


@opsmith.rowwise("opsmith::rms_norm")
def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight, means over the last dimension, for x [..., columns], weight [columns]."""
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


@rms_norm.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in rows(device, dtype):
        yield opsmith.Sample(args=(x, torch.randn(x.shape[-1], device=device, dtype=dtype)), name=name)
    x = torch.randn(6, 20, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x,), kwargs={"eps": 0.25}, name="no weight")


@rms_norm.register_cost
def cost(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> opsmith.Cost:
    return least(x, weight, written=x.nbytes, flops=4)
