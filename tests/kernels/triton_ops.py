"""Triton kernels in a module of their own, as an author who imports them has them, and an op of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

import opsmith
from opsmith import Op, Sample
from opsmith.kernels import languages

ran: list[str] = []
"""Which launching functions have run."""


@triton.jit
def plus(x, y):
    return x + y


@triton.jit
def negate(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, -tl.load(x + i, mask=i < n), mask=i < n)


def negative(x: Tensor) -> Tensor:
    return -x


@triton.autotune(configs=[triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 16})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * BLOCK + EVEN, mask=i < n)


@triton.jit
def square_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, value * value, mask=i < n)


@triton.jit
def square_kernel_in_double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, value * value, mask=i < n)


@triton.jit
def square_backward_kernel(grad, x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n).to(tl.float32) * tl.load(grad + i, mask=i < n).to(tl.float32)
    tl.store(out + i, 2 * value, mask=i < n)


def square(x: Tensor) -> Tensor:
    return x * x


def launch_square(x: Tensor) -> Any:
    ran.append("forward")
    if x.dtype is torch.int64:
        return NotImplemented
    out = torch.empty_like(x)
    kernel = square_kernel_in_double if x.dtype is torch.float64 else square_kernel
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, x.numel(), BLOCK=32, num_warps=1)
    return out


def launch_square_backward(grads: tuple[Tensor, ...], x: Tensor, *, needs: Any) -> Any:
    ran.append("backward")
    out = torch.empty_like(x)
    square_backward_kernel[(triton.cdiv(x.numel(), 32),)](grads[0], x, out, x.numel(), BLOCK=32)
    return out


def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample(args=(torch.randn(5, 17, device=device, dtype=dtype),), name="contiguous")
    yield Sample(args=(torch.randn(5, 17, device=device, dtype=dtype).t(),), name="permuted")
    yield Sample(args=(torch.randn(9, 17, device=device, dtype=dtype)[::2, 1::3],), name="sliced")
    yield Sample(args=(torch.randn(0, 3, device=device, dtype=dtype),), name="empty")
    yield Sample(args=(torch.tensor(1.5, device=device, dtype=dtype),), name="0-dim")


def declared(name: str, inline: bool = False) -> Op:
    op = opsmith.op(name)(square)
    op.register_kernel("cuda", launch_square, inline=inline)
    op.register_backward("cuda", launch_square_backward, inline=inline)
    op.register_samples(samples)
    return op


def launched_through(kernel: Any, **meta: Any) -> Callable[[Tensor], Tensor]:
    """A function that launches kernel(x, out, n) in emulation, as an op's does."""

    def launch(x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        kernel[(triton.cdiv(x.numel(), 8),)](x, out, x.numel(), **{"BLOCK": 8, **meta})
        return out

    emulated = languages.emulated(launch)
    assert emulated is not None
    return emulated


@triton.jit
def failing_kernel(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(n < 0, "n is never negative")
