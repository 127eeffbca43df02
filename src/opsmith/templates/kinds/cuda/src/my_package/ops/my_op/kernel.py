"""my_op on a GPU: the launches of kernel.cu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import opsmith
import torch
from torch import Tensor

from .op import check, my_op, my_op_

# Compiled when it is first launched, and cached on disk. After an edit the next launch recompiles it.
source = opsmith.cuda_source(Path(__file__).with_name("kernel.cu"))

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
}
THREADS = 256  # kThreads of kernel.cu
MOST_BLOCKS = 1024  # further rows are computed by the same blocks; also the rows of `partial`


@my_op.register_kernel("cuda")
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
    y, total = torch.empty_like(x), torch.empty_like(x)
    return forward(x, residual, weight, y, total, eps)


@my_op_.register_kernel("cuda")
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
    return NotImplemented if forward(x, residual, weight, x, residual, eps) is NotImplemented else None


def forward(x: Tensor, residual: Tensor, weight: Tensor, y: Tensor, total: Tensor, eps: float) -> Any:
    check(x, residual, weight)
    if x.dtype not in TYPES:
        return NotImplemented  # the reference runs
    if x.numel() > 0:
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        launch = source[f"my_op_forward<{TYPES[x.dtype]}>"][min(rows, MOST_BLOCKS), THREADS]
        launch(x, residual, weight, y, total, eps, rows, columns)
    return y, total


# The parameters of a backward kernel name what it needs, and only that is saved: `output_1` is total, the second
# result. The next layer keeps it anyway, so the op adds no memory.
@my_op.register_backward("cuda")
def _(grads: Any, weight: Tensor, eps: float, output_1: Tensor, *, needs: Any) -> Any:
    grad_y, grad_total = grads  # None where no gradient came back
    total = output_1
    columns = total.shape[-1]
    rows = total.numel() // max(columns, 1)
    blocks = min(rows, MOST_BLOCKS)
    grad_x = torch.empty_like(total) if needs.x else None
    grad_residual = torch.empty_like(total) if needs.residual else None
    partial = None
    if needs.weight:
        wide = torch.float64 if total.dtype is torch.float64 else torch.float32
        partial = torch.zeros(blocks, columns, dtype=wide, device=total.device)
    if total.numel() > 0:
        launch = source[f"my_op_backward<{TYPES[total.dtype]}>"][blocks, THREADS]
        launch(grad_y, grad_total, total, weight, grad_x, grad_residual, partial, eps, rows, columns)
    return grad_x, grad_residual, None if partial is None else partial.sum(0).to(weight.dtype)
