"""y = 2 x in CUDA C++: what the ops with a fault that only a GPU shows have in common.

`declared` makes the op of a kernel; `launch` is the sound one. The sanitizer item has the kernels compiled with line
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import opsmith
from opsmith import Op

THREADS = 64
TEXT = r"""
__global__ void doubled(const float* x, float* y, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = 2 * x[i];
}
__global__ void doubled_rows(const float* x, float* y, long long columns) {  // one block per row
  const long long row = blockIdx.y * columns;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) y[row + i] = 2 * x[row + i];
}
__global__ void beyond(const float* x, float* y, long long count) {  // by one, where their number is odd
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count + count % 2) y[i] = 2 * x[i < count ? i : count - 1];
}
__global__ void racy(const float* x, float* y, long long count) {  // each reads what another has written
  __shared__ float kept[64];
  const long long first = blockIdx.x * static_cast<long long>(blockDim.x);
  const int mirrored = blockDim.x - 1 - threadIdx.x;
  kept[mirrored] = first + mirrored < count ? x[first + mirrored] : 0.0f;
  if (first + threadIdx.x < count) y[first + threadIdx.x] = 2 * kept[threadIdx.x];
}
__global__ void unset(const float* x, const float* scratch, float* y, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = scratch[i] == 12345.678f ? 3 * x[i] : 2 * x[i];
}
__global__ void divergent(const float* x, float* y, long long count) {  // lanes at a barrier that is not for them
  __shared__ float kept[64];
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  kept[threadIdx.x] = i < count ? x[i] : 0.0f;
  __syncwarp(1u);
  if (i < count) y[i] = 2 * kept[threadIdx.x];
}
"""
cu: Any = opsmith.cuda_source(TEXT)


def declared(module: str, kernel: Callable[[Tensor], Any] | None = None) -> Op:
    """The op of a module of this folder, with a kernel for float32 on CUDA; the sound one where none is given."""

    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    doubled.__module__ = module
    op = opsmith.op(f"faulty::{module.rpartition('.')[2]}")(doubled)
    op.register_kernel("cuda", _taken(kernel or launch))
    op.register_samples(samples)
    return op


def _taken(kernel: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    return lambda x: kernel(x) if x.dtype is torch.float32 and x.numel() else NotImplemented


def launch(x: Tensor, kernel: str = "doubled") -> Tensor:
    y = torch.empty_like(x)
    launch_into(x, y, kernel)
    return y


def launch_into(x: Tensor, y: Tensor, kernel: str = "doubled", *more: Tensor) -> None:
    cu[kernel][-(-x.numel() // THREADS), THREADS](x, *more, y, x.numel())


def samples(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, shape in (("even", (4, 30)), ("odd", (5, 7)), ("none", (0,)), ("one", (1,))):
        yield opsmith.Sample(args=(torch.randn(shape, device=device, dtype=dtype),), name=name)
