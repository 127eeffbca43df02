"""kl_div_rows: the Kullback-Leibler divergence of two rows of logits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, rows


@opsmith.rowwise("opsmith::kl_div_rows")
def kl_div_rows(logits: Tensor, target_logits: Tensor) -> Tensor:
    """d = sum(p * (log(p) - log(q))) with q = softmax(logits), p = softmax(target_logits), both [..., columns].

    d is [...]; a class of probability zero in p adds nothing."""
    log_p, log_q = torch.log_softmax(target_logits, -1), torch.log_softmax(logits, -1)
    p = log_p.exp()
    return (p * torch.where(p > 0, log_p - log_q, 0.0)).sum(-1)


@kl_div_rows.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in rows(device, dtype):
        yield opsmith.Sample(args=(x, torch.randn_like(x)), name=name)


@kl_div_rows.register_cost
def cost(logits: Tensor, target_logits: Tensor) -> opsmith.Cost:
    return least(logits, target_logits, written=logits[..., :1].nbytes, flops=10)
