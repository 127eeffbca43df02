"""group_norm: groups of channels of mean zero and variance one, scaled and shifted for each channel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import groups, least


@opsmith.rowwise("opsmith::group_norm")
def group_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over each group, for x [batch, groups, size, ...].

    size: the channels of a group. weight and bias [groups, size, 1, ...] have a one for each dimension after them."""
    y = torch.nn.functional.layer_norm(x, x.shape[2:], None, None, eps) * weight + bias
    return y


@group_norm.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in groups(device, dtype):
        weight, bias = torch.randn((2, *x.shape[1:3], *(1 for _ in x.shape[3:])), device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, weight, bias, 1e-3), name=name)


@group_norm.register_cost
def cost(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> opsmith.Cost:
    return least(x, weight, bias, written=x.nbytes, flops=7)
