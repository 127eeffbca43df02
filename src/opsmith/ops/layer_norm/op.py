"""layer_norm: rows of mean zero and variance one, scaled and shifted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, rows


@opsmith.rowwise("opsmith::layer_norm")
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension, for x [..., columns].

    weight [columns], bias [columns] and y [..., columns]; the variance is divided by the number of columns."""
    variance = x.var(-1, keepdim=True, correction=0)
    y = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@layer_norm.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in rows(device, dtype):
        weight, bias = torch.randn(2, x.shape[-1], device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, weight, bias, 1e-3), name=name)
    yield opsmith.Sample(args=(torch.randn(6, 20, device=device, dtype=dtype),), name="no weight")


@layer_norm.register_cost
def cost(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> opsmith.Cost:
    return least(x, weight, bias, written=x.nbytes, flops=7)
