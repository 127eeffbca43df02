"""my_op in Numba:

    total = x + residual, y = total * scale * weight, scale = 1 / sqrt(mean(total^2) + eps)

A block computes a row at a time. Each thread adds up its columns, then the block adds the threads' sums in a fixed
order, so the same call gives the same bits. Numba has no bfloat16: in forward, the reference computes half types; in
backward, they are converted to float32.
"""

from __future__ import annotations

import math
from typing import Any

import opsmith
import torch
from numba import cuda, float32, float64
from torch import Tensor

from .op import check, my_op, my_op_

DTYPES = (torch.float32, torch.float64)
THREADS = 32
MOST_BLOCKS = 1024  # further rows are computed by the same blocks; also the rows of `partial`


def kernels(real: Any) -> tuple[Any, Any]:
    """The kernels for one dtype: shared memory has a type that is known when they are compiled."""

    @opsmith.numba_kernel
    @cuda.jit
    def forward(x: Any, residual: Any, weight: Any, y: Any, total: Any, eps: Any) -> None:
        sums = cuda.shared.array(THREADS, real)
        rows, columns = x.shape
        for row in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
            squares = real(0)
            for i in range(cuda.threadIdx.x, columns, THREADS):
                value = x[row, i] + residual[row, i]
                squares += value * value
            sums[cuda.threadIdx.x] = squares
            cuda.syncthreads()
            squares = real(0)
            for thread in range(THREADS):
                squares += sums[thread]
            cuda.syncthreads()  # every thread has read the sums before the next row writes them
            scale = real(1) / math.sqrt(squares / real(columns) + real(eps))
            for i in range(cuda.threadIdx.x, columns, THREADS):
                value = x[row, i] + residual[row, i]
                total[row, i] = value
                y[row, i] = value * scale * weight[i]

    # With g = grad_y * weight:
    #   grad of total   grad_total + scale * g - total * scale^3 * mean(g * total), which is that of x and of residual
    #   grad of weight  the sum over rows of grad_y * total * scale: a row of `partial` for each block
    @opsmith.numba_kernel
    @cuda.jit
    def backward(
        grad_y: Any, grad_total: Any, total: Any, weight: Any, grad_x: Any, grad_residual: Any, partial: Any, eps: Any
    ) -> None:
        sums = cuda.shared.array((2, THREADS), real)
        rows, columns = total.shape
        for row in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
            squares, products = real(0), real(0)
            for i in range(cuda.threadIdx.x, columns, THREADS):
                squares += total[row, i] * total[row, i]
                products += grad_y[row, i] * weight[i] * total[row, i]
            sums[0, cuda.threadIdx.x] = squares
            sums[1, cuda.threadIdx.x] = products
            cuda.syncthreads()
            squares, products = real(0), real(0)
            for thread in range(THREADS):
                squares += sums[0, thread]
                products += sums[1, thread]
            cuda.syncthreads()
            scale = real(1) / math.sqrt(squares / real(columns) + real(eps))
            factor = products / real(columns) * scale * scale * scale
            for i in range(cuda.threadIdx.x, columns, THREADS):
                grad = grad_total[row, i] + scale * grad_y[row, i] * weight[i] - factor * total[row, i]
                grad_x[row, i] = grad
                grad_residual[row, i] = grad
                partial[cuda.blockIdx.x, i] += grad_y[row, i] * total[row, i] * scale

    return forward, backward


forward_float32, backward_float32 = kernels(float32)
forward_float64, backward_float64 = kernels(float64)


@my_op.register_kernel("cuda")
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
    return launch(x, residual, weight, torch.empty_like(x), torch.empty_like(x), eps)


@my_op_.register_kernel("cuda")
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
    return NotImplemented if launch(x, residual, weight, x, residual, eps) is NotImplemented else None


def launch(x: Tensor, residual: Tensor, weight: Tensor, y: Tensor, total: Tensor, eps: float) -> Any:
    check(x, residual, weight)
    if x.dtype not in DTYPES or x.numel() == 0:
        return NotImplemented  # the reference runs
    kernel = forward_float64 if x.dtype is torch.float64 else forward_float32
    rows = matrix(x).shape[0]
    kernel[min(rows, MOST_BLOCKS), THREADS](matrix(x), matrix(residual), weight, matrix(y), matrix(total), eps)
    return y, total


# The parameters of a backward kernel name what it needs, and only that is saved: `output_1` is total, the second
# result. The next layer keeps it anyway, so the op adds no memory.
@my_op.register_backward("cuda")
def _(grads: Any, weight: Tensor, eps: float, output_1: Tensor, *, needs: Any) -> Any:
    wide = torch.float64 if weight.dtype is torch.float64 else torch.float32
    total = matrix(output_1.to(wide))
    grad_y, grad_total = (torch.zeros_like(total) if grad is None else matrix(grad.to(wide)) for grad in grads)
    kernel = backward_float64 if wide is torch.float64 else backward_float32
    blocks = min(total.shape[0], MOST_BLOCKS)
    grad_x, grad_residual = torch.empty_like(total), torch.empty_like(total)
    partial = total.new_zeros(blocks, total.shape[1])
    kernel[blocks, THREADS](grad_y, grad_total, total, weight.to(wide), grad_x, grad_residual, partial, eps)
    shape, dtype = output_1.shape, output_1.dtype
    results = grad_x.view(shape).to(dtype), grad_residual.view(shape).to(dtype), partial.sum(0).to(dtype)
    return tuple(result if needed else None for result, needed in zip(results, needs, strict=True))


def matrix(x: Tensor) -> Tensor:
    """[..., features] as [rows, features]."""
    return x.view(x.numel() // max(x.shape[-1], 1), x.shape[-1])
