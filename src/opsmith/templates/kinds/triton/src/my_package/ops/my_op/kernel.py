"""my_op in Triton:

    total = x + residual, y = total * scale * weight, scale = 1 / sqrt(mean(total^2) + eps)

A program computes a row at a time and holds it in registers. Half types are computed in float32 and rounded once. A row
has at most LONGEST features: longer ones are left to the reference.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .op import check, my_op, my_op_

WIDE = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.float16: tl.float32,
    torch.bfloat16: tl.float32,
}
LONGEST = 16384
MOST_PROGRAMS = 1024  # further rows are computed by the same programs; also the rows of `partial`


# eps is compiled in, because Triton passes floats in 32 bits. Offsets need 64 bits: `step` is a vector of int64.
@triton.jit
def my_op_forward(  # type: ignore[no-untyped-def]
    x, residual, weight, y, total, rows, columns, eps: tl.constexpr, WIDTH: tl.constexpr, wide: tl.constexpr
):
    place = tl.arange(0, WIDTH)
    inside = place < columns
    step = tl.zeros([WIDTH], dtype=tl.int64) + columns
    factor = tl.load(weight + place, mask=inside, other=0.0).to(wide)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = place + step * row
        sum = tl.load(x + at, mask=inside, other=0.0).to(wide)
        sum += tl.load(residual + at, mask=inside, other=0.0).to(wide)
        scale = 1 / tl.sqrt(tl.sum(sum * sum, axis=0) / columns + eps)
        tl.store(total + at, sum, mask=inside)
        tl.store(y + at, sum * scale * factor, mask=inside)


# With g = grad_y * weight:
#   grad of total   grad_total + scale * g - total * scale^3 * mean(g * total), which is that of x and of residual
#   grad of weight  the sum over rows of grad_y * total * scale: a row of `partial` for each program
# grad_y and grad_total are None where no gradient came back, and results are None where none is needed. Triton compiles
# a kernel for each case.
@triton.jit
def my_op_backward(  # type: ignore[no-untyped-def]
    grad_y, grad_total, total, weight, grad_x, grad_residual, partial, rows, columns,
    eps: tl.constexpr, WIDTH: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    place = tl.arange(0, WIDTH)
    inside = place < columns
    step = tl.zeros([WIDTH], dtype=tl.int64) + columns
    factor = tl.load(weight + place, mask=inside, other=0.0).to(wide)
    of_weight = tl.zeros([WIDTH], dtype=wide)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = place + step * row
        sum = tl.load(total + at, mask=inside, other=0.0).to(wide)
        scale = 1 / tl.sqrt(tl.sum(sum * sum, axis=0) / columns + eps)
        result = tl.zeros([WIDTH], dtype=wide)
        if grad_total is not None:
            result += tl.load(grad_total + at, mask=inside, other=0.0).to(wide)
        if grad_y is not None:
            grad = tl.load(grad_y + at, mask=inside, other=0.0).to(wide)
            of_weight += grad * sum * scale
            grad *= factor
            result += scale * grad - sum * (scale * scale * scale * tl.sum(grad * sum, axis=0) / columns)
        if grad_x is not None:
            tl.store(grad_x + at, result, mask=inside)
        if grad_residual is not None:
            tl.store(grad_residual + at, result, mask=inside)
    if partial is not None:
        tl.store(partial + tl.program_id(0) * columns + place, of_weight, mask=inside)


@my_op.register_kernel("cuda")
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
    return forward(x, residual, weight, torch.empty_like(x), torch.empty_like(x), eps)


@my_op_.register_kernel("cuda")
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
    return NotImplemented if forward(x, residual, weight, x, residual, eps) is NotImplemented else None


def forward(x: Tensor, residual: Tensor, weight: Tensor, y: Tensor, total: Tensor, eps: float) -> Any:
    check(x, residual, weight)
    rows, columns, programs = shape_of(x)
    if x.dtype not in WIDE or columns > LONGEST:
        return NotImplemented  # the reference runs
    if x.numel() > 0:
        options = {"eps": eps, "WIDTH": triton.next_power_of_2(columns), "wide": WIDE[x.dtype]}
        my_op_forward[(programs,)](x, residual, weight, y, total, rows, columns, **options)
    return y, total


# The parameters of a backward kernel name what it needs, and only that is saved. Saving `output_1`, the second result,
# would be enough for the kernel; x and residual are saved because the reference needs them for long rows.
@my_op.register_backward("cuda")
def _(grads: Any, x: Tensor, residual: Tensor, weight: Tensor, eps: float, output_1: Tensor, *, needs: Any) -> Any:
    grad_y, grad_total = grads  # None where no gradient came back
    total = output_1
    rows, columns, programs = shape_of(total)
    if columns > LONGEST:
        return NotImplemented
    grad_x = torch.empty_like(total) if needs.x else None
    grad_residual = torch.empty_like(total) if needs.residual else None
    wide = torch.float64 if total.dtype is torch.float64 else torch.float32
    partial = total.new_zeros(programs, columns, dtype=wide) if needs.weight else None
    if total.numel() > 0:
        options = {"eps": eps, "WIDTH": triton.next_power_of_2(columns), "wide": WIDE[total.dtype]}
        my_op_backward[(programs,)](
            grad_y, grad_total, total, weight, grad_x, grad_residual, partial, rows, columns, **options
        )
    return grad_x, grad_residual, None if partial is None else partial.sum(0).to(weight.dtype)


def shape_of(x: Tensor) -> tuple[int, int, int]:
    """Rows, columns, and the programs that compute them."""
    columns = x.shape[-1]
    rows = x.numel() // max(columns, 1)
    return rows, columns, min(rows, MOST_PROGRAMS)
