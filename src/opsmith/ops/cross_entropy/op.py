"""cross_entropy: the negative log-likelihood of each row's class."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._rows import least, with_targets


@opsmith.rowwise("opsmith::cross_entropy")
def cross_entropy(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0, ignore_index: int = -100
) -> Tensor:
    """loss = logsumexp(logits) - logits[target] over the last dimension, for logits [..., classes], target [...].

    Label smoothing and z_loss * logsumexp^2 are added. The loss [...] of a row whose target is ignore_index is 0."""
    lse = logits.logsumexp(-1)
    kept = target != ignore_index
    chosen = logits.gather(-1, torch.where(kept, target, 0)[..., None])[..., 0]
    share = torch.full_like(lse, label_smoothing)
    smooth = torch.where(share > 0, share * (lse - logits.mean(-1)), 0.0)  # a class may have the logit -inf
    loss = (1 - label_smoothing) * (lse - chosen) + smooth + z_loss * lse.square()
    return torch.where(kept, loss, 0.0)


@cross_entropy.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, logits, target in with_targets(device, dtype):
        yield opsmith.Sample(args=(logits, target), name=name)
    logits = torch.randn(6, 20, device=device, dtype=dtype)
    target = torch.tensor([0, 19, -100, 3, -100, 7], device=device)
    yield opsmith.Sample(args=(logits, target, 0.1, 1e-3), name="smooth, z-loss, two rows ignored")


@cross_entropy.register_cost
def cost(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0, ignore_index: int = -100
) -> opsmith.Cost:
    return least(logits, target, written=logits[..., :1].nbytes, flops=5)
