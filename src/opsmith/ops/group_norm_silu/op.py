"""group_norm_silu: group norm, then SiLU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import groups, least


@opsmith.rowwise("opsmith::group_norm_silu")
def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """y = silu((x - mean(x)) / sqrt(var(x) + eps) * weight + bias) over each group, for x [batch, groups, size, ...].

    size: the channels of a group. weight and bias [groups, size, 1, ...] have a one for each dimension after them."""
    y = torch.nn.functional.layer_norm(x, x.shape[2:], None, None, eps) * weight + bias
    return y * torch.sigmoid(y)


@group_norm_silu.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in groups(device, dtype):
        weight, bias = torch.randn((2, *x.shape[1:3], *(1 for _ in x.shape[3:])), device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, weight, bias, 1e-3), name=name)


@group_norm_silu.register_cost
def cost(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> opsmith.Cost:
    return least(x, weight, bias, written=x.nbytes, flops=12)
