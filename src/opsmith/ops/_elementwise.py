"""Shared by the elementwise ops: sample tensors, and the cost of a call."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from ..operator.samples import Cost, Sample

COLUMNS = 1024
ROWS, ROWS_ON_CUDA = 1024, 16384
"""Of the large tensor: more than fits into a core's cache, and into a GPU's."""

LENGTHS = (0, 1, 7, 8, 9, 63, 65)
"""None, one, and around the width of a vector."""

SPECIAL = (0.0, -0.0, 1e-6, -1e-6, 20.0, -20.0, 100.0, -100.0, float("nan"))

INFINITIES = (float("inf"), float("-inf"))


def tensors(device: str | torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) for each size and layout at which an elementwise kernel can be wrong, the usual one first."""
    yield "contiguous", torch.randn(64, 48, device=device, dtype=dtype)
    for length in LENGTHS:
        yield f"{length} elements", torch.randn(length, device=device, dtype=dtype)
    yield "0-dim", torch.tensor(1.5, device=device, dtype=dtype)
    yield "sliced", torch.randn(40, 27, device=device, dtype=dtype)[::3, 1::2]
    yield "special values", torch.tensor(SPECIAL, device=device, dtype=dtype)
    yield "infinities", torch.tensor(INFINITIES, device=device, dtype=dtype)
    rows = ROWS_ON_CUDA if torch.device(device).type == "cuda" else ROWS
    yield "large", torch.randn(rows, COLUMNS, device=device, dtype=dtype)


def unary_samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[Sample]:
    """A call with each of these tensors."""
    for name, x in tensors(device, dtype):
        yield Sample(args=(x,), name=name)


def least(*inputs: Tensor, flops: int) -> Cost:
    """Each input read once, the result written once; `flops` per element."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in inputs))
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in inputs))
    count = shape.numel()
    return Cost(bytes=sum(tensor.nbytes for tensor in inputs) + count * dtype.itemsize, flops=flops * count)
