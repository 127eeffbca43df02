"""A sum by float atomics: right within rounding, but its bits depend on the order of the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import opsmith
from opsmith import Sample

THREADS = 32
cu: Any = opsmith.cuda_source(r"""
__global__ void total(const float* x, float* sum, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) atomicAdd(sum, x[i]);
}
""")


@opsmith.op("faulty::adds_in_any_order")
def total(x: Tensor) -> Tensor:
    return x.sum()


@total.register_kernel("cuda")
def _(x: Tensor) -> Any:
    if x.dtype is not torch.float32 or x.numel() == 0:
        return NotImplemented
    result = torch.zeros((), dtype=x.dtype, device=x.device)
    cu.total[-(-x.numel() // THREADS), THREADS](x, result, x.numel())
    return result


@total.register_samples
def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(1000, device=device, dtype=dtype),), name="a thousand")
