"""Shared by the ops of rows: sample tensors, and the cost of a call."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..operator.samples import Cost, Sample

COLUMNS = 1024
ROWS, ROWS_ON_CUDA = 512, 16384
"""Of the large tensor: more than fits into a core's cache, and into a GPU's."""

SHAPES = ((24, 40), (0, 8), (5, 1), (2, 3, 33), (3, 3000))
"""The usual one, no row, rows of one element, of no whole number of vectors, and of more than a block of them."""


def rows(device: str | torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) for each size and layout at which a kernel of rows can be wrong, the usual one first."""
    for shape in SHAPES:
        yield " x ".join(map(str, shape)), torch.randn(shape, device=device, dtype=dtype)
    yield "sliced", torch.randn(18, 41, device=device, dtype=dtype)[::3, 1::2]
    equal = torch.tensor([[2.0] * 9, [0.0] * 9, [-1.0, 3.0, 3.0] * 3], device=device, dtype=dtype)
    yield "equal elements", equal
    count = ROWS_ON_CUDA if torch.device(device).type == "cuda" else ROWS
    yield "large", torch.randn(count, COLUMNS, device=device, dtype=dtype)


GROUPS = ((2, 3, 4, 5, 6), (3, 2, 1, 7), (2, 2, 5), (0, 2, 3, 4), (1, 2, 8, 30, 31))
"""Of images, of sequences, without other dimensions, of no batch, and of rows longer than a block."""


def groups(device: str | torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of [batch, groups, channels, ...], the usual one first."""
    for shape in GROUPS:
        yield " x ".join(map(str, shape)), torch.randn(shape, device=device, dtype=dtype)
    images = torch.randn(2, 12, 5, 6, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    yield "channels last", images.unflatten(1, (3, 4))
    yield "sliced", torch.randn(4, 2, 3, 5, 14, device=device, dtype=dtype)[::2, ..., ::2]
    batch = 64 if torch.device(device).type == "cuda" else 2
    yield "large", torch.randn(batch, 32, 8, 32, 32, device=device, dtype=dtype)


def unary_samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[Sample]:
    """A call with each of these tensors."""
    for name, x in rows(device, dtype):
        yield Sample(args=(x,), name=name)


def with_targets(device: str | torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, logits, target) for each of these tensors: the number of a class for each row."""
    generator = torch.Generator().manual_seed(0)
    for name, x in rows(device, dtype):
        target = torch.randint(0, x.shape[-1], x.shape[:-1], generator=generator)
        yield name, x, target.to(x.device)


def least(*tensors: Tensor | None, written: int, flops: int) -> Cost:
    """Each input read once, and so many bytes written; `flops` for each element of the first."""
    read = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    first = tensors[0]
    return Cost(bytes=read + written, flops=flops * (first.numel() if first is not None else 0))
