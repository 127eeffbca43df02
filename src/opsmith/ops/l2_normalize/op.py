"""l2_normalize: rows of length one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, unary_samples


@opsmith.rowwise("opsmith::l2_normalize")
def l2_normalize(x: Tensor, eps: float = 1e-12) -> Tensor:
    """y = x / max(norm(x), eps) over the last dimension, for x [..., columns] and y [..., columns]."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.clamp_min(eps)


@l2_normalize.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield from unary_samples(device, dtype)
    x = torch.randn(6, 20, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, 4.5), name="some rows are shorter than eps")


@l2_normalize.register_cost
def cost(x: Tensor, eps: float = 1e-12) -> opsmith.Cost:
    return least(x, written=x.nbytes, flops=3)
