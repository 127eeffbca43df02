"""focal_loss: cross entropy that counts well classified rows less."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, with_targets


@opsmith.rowwise("opsmith::focal_loss")
def focal_loss(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """loss = -(1 - p)^gamma * log(p) with p = softmax(logits)[target], for logits [..., classes], target [...].

    The loss is [...]; the softmax is over the last dimension."""
    log_p = logits.gather(-1, target[..., None])[..., 0] - logits.logsumexp(-1)
    return -((-torch.expm1(log_p)) ** gamma) * log_p


@focal_loss.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, logits, target in with_targets(device, dtype):
        if logits.shape[-1] > 1:  # of one class p is 1, where the power has no second derivative
            yield opsmith.Sample(args=(logits, target), name=name)
    logits = torch.randn(6, 20, device=device, dtype=dtype)
    yield opsmith.Sample(args=(logits, torch.arange(6, device=device), 1.5), name="gamma 1.5")


@focal_loss.register_cost
def cost(logits: Tensor, target: Tensor, gamma: float = 2.0) -> opsmith.Cost:
    return least(logits, target, written=logits[..., :1].nbytes, flops=4)
