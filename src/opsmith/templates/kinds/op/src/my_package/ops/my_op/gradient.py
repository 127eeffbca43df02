"""The gradient in PyTorch. Without it opsmith derives one, which saves every input and runs the reference again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .op import my_op

# The parameters name what the gradient needs, and only that is saved: `output_1` is total, the second result. The next
# layer keeps it anyway, so the op adds no memory.
#
# With scale = 1 / sqrt(mean(total^2) + eps) and g = grad_y * weight:
#   grad of total   grad_total + scale * g - total * scale^3 * mean(g * total), which is that of x and of residual
#   grad of weight  the sum over rows of grad_y * total * scale


@my_op.register_backward("cpu")
@my_op.register_backward("cuda")
def backward(grads: Any, weight: Tensor, eps: float, output_1: Tensor, *, needs: Any) -> Any:
    if output_1.dtype not in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return NotImplemented  # the derived gradient is used
    wide = torch.float64 if output_1.dtype is torch.float64 else torch.float32
    total = output_1.to(wide)
    grad_y, grad_total = (torch.zeros_like(total) if grad is None else grad.to(wide) for grad in grads)
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    g = grad_y * weight
    grad = grad_total + scale * g - total * scale.pow(3) * (g * total).mean(-1, keepdim=True)
    grad_weight = (grad_y * total * scale).sum_to_size(weight.shape) if needs.weight else None
    # A result for each tensor argument, in its dtype; None where no gradient is needed. They share no memory.
    return (
        grad.to(output_1.dtype) if needs.x else None,
        grad.to(output_1.dtype, copy=True) if needs.residual else None,
        grad_weight.to(weight.dtype) if grad_weight is not None else None,
    )
