"""add_rms_norm: a residual is added, and the sum divided by the root of its mean square."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, rows


@opsmith.rowwise("opsmith::add_rms_norm")
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """y = h / sqrt(mean(h^2) + eps) * weight with h = x + residual, for x, residual [..., columns], weight [columns].

    Returns y and h: h is the residual of the next layer."""
    hidden = x + residual
    return hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + eps) * weight, hidden


@add_rms_norm.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in rows(device, dtype):
        weight = torch.randn(x.shape[-1], device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, torch.randn_like(x), weight, 1e-3), name=name)


@add_rms_norm.register_cost
def cost(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> opsmith.Cost:
    return least(x, residual, weight, written=2 * x.nbytes, flops=5)
