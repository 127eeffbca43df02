"""quantize_rows: rows of int8 with one scale each."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, unary_samples


@opsmith.rowwise("opsmith::quantize_rows")
def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """q = round(x / scale) in int8 with scale = max(|x|) / 127 over the last dimension, for x [..., columns].

    Returns q [..., columns] and scale [...] in float32. Rows are divided by their scale, not multiplied by its
    reciprocal. A row of zeros has scale 0; NaN becomes 0."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = torch.round(x / torch.where(scale > 0, scale, 1.0)).nan_to_num(0.0).clamp(-127, 127)
    return q.to(torch.int8), scale[..., 0].float()


@quantize_rows.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield from unary_samples(device, dtype)


@quantize_rows.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, written=x.numel() + 4 * x[..., :1].numel(), flops=4)
