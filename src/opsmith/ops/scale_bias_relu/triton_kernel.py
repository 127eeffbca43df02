"""scale_bias_relu in Triton: one kernel forward, one backward, and one that adds the backward's partial sums.

A program computes a tile of rows and columns; x is read as [rows, columns], and the bias of a column once per tile. In
the backward, a program goes down the rows of its chunk and keeps the sum of each column; `_combine` adds the sums of
all chunks. So the gradient of the bias is summed in a fixed order, without atomics. The number of chunks depends on the
shape alone: every GPU gives the same bits.

Not supported, so that the reference runs: a bias that is not [columns], and an x whose dtype is not the bias's.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TILE = 2048  # elements of a program's tile: 16 a thread
WIDEST = 512  # columns of a tile
CHUNKS = 1024  # programs that sum the gradient of the bias, at most
COMBINED = 16  # columns of a program that combines their sums
MOST_ROWS = 2**31 - TILE  # row numbers are 32 bits wide, places in memory 64
EXACT = {"enable_fp_fusion": False}  # x * scale + bias rounds twice, as torch's two operators do


# Triton reads annotations as Triton types, so there are no others here.
@triton.jit
def _scale(x, high, middle, low):  # type: ignore[no-untyped-def]
    """The scale in the precision of the arithmetic. Triton passes a float as 32 bits, so a 64-bit one comes in three
    parts; for the other dtypes torch rounds it to float32 too."""
    if x.dtype.element_ty == tl.float64:
        return tl.cast(high, tl.float64) + tl.cast(middle, tl.float64) + tl.cast(low, tl.float64)
    else:
        return tl.cast(high, tl.float32)


@triton.jit
def _before_relu(x, bias, place, column, inside, columns, scale):  # type: ignore[no-untyped-def]
    value = tl.load(x + place, mask=inside, other=0.0).to(scale.dtype)
    shift = tl.load(bias + column, mask=column < columns, other=0.0).to(scale.dtype)
    return value * scale + shift[None, :]


@triton.jit  # type: ignore[untyped-decorator]
def _forward(x, bias, out, rows, columns, high, middle, low, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    across = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // across) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row.to(tl.int64)[:, None] * columns + column[None, :]
    value = _before_relu(x, bias, place, column, inside, columns, _scale(x, high, middle, low))
    # Not maximum(value, 0): NaN stays NaN, as in torch.
    tl.store(out + place, tl.where(value <= 0, 0.0, value), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    grad, x, bias, grad_x, partial, rows, columns, rows_in_chunk, high, middle, low,
    NEEDS_X: tl.constexpr, NEEDS_BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(columns, COLUMNS)
    chunk = tl.program_id(0) // across
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    scale = _scale(x, high, middle, low)
    total = tl.zeros([COLUMNS], dtype=scale.dtype)
    first = chunk * rows_in_chunk
    for start in range(first, tl.minimum(first + rows_in_chunk, rows), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        place = row.to(tl.int64)[:, None] * columns + column[None, :]
        value = _before_relu(x, bias, place, column, inside, columns, scale)
        passed = tl.load(grad + place, mask=inside, other=0.0).to(scale.dtype)
        passed = tl.where(value <= 0, 0.0, passed)
        if NEEDS_X:
            tl.store(grad_x + place, passed * scale, mask=inside)
        total += tl.sum(passed, axis=0)
    if NEEDS_BIAS:
        tl.store(partial + chunk.to(tl.int64) * columns + column, total, mask=column < columns)


@triton.jit  # type: ignore[untyped-decorator]
def _combine(partial, grad_bias, chunks, columns, CHUNKS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], dtype=partial.dtype.element_ty)
    # Many at once, which tl.sum adds in pairs: adding hundreds of them one by one would lose digits.
    for first in range(0, chunks, CHUNKS):
        chunk = first + tl.arange(0, CHUNKS)
        inside = (chunk < chunks)[:, None] & (column < columns)[None, :]
        place = chunk.to(tl.int64)[:, None] * columns + column[None, :]
        total += tl.sum(tl.load(partial + place, mask=inside, other=0.0), axis=0)
    tl.store(grad_bias + column, total, mask=column < columns)


def forward(x: Tensor, bias: Tensor, scale: float) -> Any:
    parts = _parts(x, bias, scale)
    if parts is None:
        return NotImplemented
    out = torch.empty_like(x)
    if x.numel():
        rows, columns, tile = _tiles(x)
        grid = (triton.cdiv(rows, tile["ROWS"]) * triton.cdiv(columns, tile["COLUMNS"]),)
        _forward[grid](x, bias, out, rows, columns, *parts, **tile, **EXACT)
    return out


def backward(grads: tuple[Tensor, ...], x: Tensor, bias: Tensor, scale: float, *, needs: Any) -> Any:
    parts = _parts(x, bias, scale)
    if parts is None:
        return NotImplemented
    grad_x = torch.empty_like(x) if needs.x else None
    if not x.numel():
        return grad_x, torch.zeros_like(bias)
    rows, columns, tile = _tiles(x)
    across = triton.cdiv(columns, tile["COLUMNS"])
    tiles_down = triton.cdiv(rows, tile["ROWS"])
    rows_in_chunk = tile["ROWS"] * triton.cdiv(tiles_down, max(1, CHUNKS // across))
    chunks = triton.cdiv(rows, rows_in_chunk)
    grad_bias = torch.empty_like(bias) if needs.bias else None
    precision = torch.float64 if x.dtype is torch.float64 else torch.float32
    partial = torch.empty((chunks, columns) if needs.bias else (0,), dtype=precision, device=x.device)
    _backward[(across * chunks,)](
        grads[0], x, bias, grad_x, partial, rows, columns, rows_in_chunk, *parts,
        NEEDS_X=needs.x, NEEDS_BIAS=needs.bias, **tile, **EXACT,
    )  # fmt: skip
    if grad_bias is not None:
        width = min(tile["COLUMNS"], COMBINED)
        _combine[(triton.cdiv(columns, width),)](
            partial, grad_bias, chunks, columns, CHUNKS=TILE // COMBINED, COLUMNS=width
        )
    return grad_x, grad_bias


def _parts(x: Tensor, bias: Tensor, scale: float) -> tuple[float, float, float] | None:
    """The scale as the sum of three 32-bit numbers; None if this kernel does not support the call."""
    if x.dtype not in DTYPES or bias.dtype != x.dtype or x.ndim == 0 or bias.shape != x.shape[-1:]:
        return None
    high = ctypes.c_float(scale).value
    middle = ctypes.c_float(scale - high).value
    low = scale - high - middle
    if x.dtype is torch.float64 and high + middle + low != scale:  # out of range for 32 bits, or NaN
        return None
    return (high, middle, low) if x.numel() < x.shape[-1] * MOST_ROWS or not x.numel() else None


def _tiles(x: Tensor) -> tuple[int, int, dict[str, int]]:
    """(rows, columns, the sizes of a tile)."""
    columns = x.shape[-1]
    width = min(triton.next_power_of_2(columns), WIDEST)
    return x.numel() // columns, columns, {"ROWS": TILE // width, "COLUMNS": width}
