"""Faults with strides: kernels that are registered for every layout, but do not support it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import opsmith

from . import sound
from .library import mutation

FINDERS = ("input_layouts", "generated", "outputs_written")


def _strided(name: str, kernel: Any) -> opsmith.Op:
    op = sound.softsign(name)
    op.register_kernel("cpu", kernel, layout="strided")
    return op


def _in_memory_order(x: Tensor) -> Tensor:
    """The elements as they lie in memory, as many as there are."""
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    flat = torch.zeros(x.numel(), dtype=x.dtype)
    count = min(held, x.numel())
    flat[:count] = x.as_strided((count,), (1,))
    return flat.view(x.shape)


@mutation("layout", *FINDERS)
def strides_ignored(name: str) -> opsmith.Op:
    """data_ptr and a count of elements: a transposed matrix is read as if it were not."""
    return _strided(name, lambda x, scale: sound.softsign_kernel(_in_memory_order(x), scale))


@mutation("layout", *FINDERS)
def dense_is_taken_for_contiguous(name: str) -> opsmith.Op:
    """Permuted tensors are put right, slices are not."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        gaps = x.numel() > 1 and 1 not in x.stride()
        return sound.softsign_kernel(_in_memory_order(x) if gaps else x.contiguous(), scale)

    return _strided(name, kernel)


@mutation("layout", *FINDERS)
def storage_offset_ignored(name: str) -> opsmith.Op:
    """The kernel begins where the storage does, not where the view does."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        return sound.softsign_kernel(x.as_strided(x.shape, x.stride(), 0), scale)

    return _strided(name, kernel)


@mutation("layout", *FINDERS)
def vectors_need_alignment(name: str) -> opsmith.Op:
    """Sixteen bytes at once, from an address that is not a multiple of sixteen: a GPU would raise, and this does."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        if x.numel() and x.data_ptr() % 16:
            raise RuntimeError("misaligned address")
        return sound.softsign_kernel(x, scale).contiguous()

    return _strided(name, kernel)


@mutation("layout", *FINDERS)
def stride_zero(name: str) -> opsmith.Op:
    """An expanded tensor has fewer elements in memory than it counts."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        expanded = 0 in x.stride() and x.numel() > 1
        return sound.softsign_kernel(_in_memory_order(x) if expanded else x.contiguous(), scale)

    return _strided(name, kernel)


@mutation("layout", "input_layouts", "fake", "opcheck", "compile", "generated", "export")
def result_strided_like_the_input(name: str) -> opsmith.Op:
    """The kernel returns a permuted tensor for a permuted input, where the op promises contiguous ones."""
    op = sound.softsign(name)
    op.register_kernel("cpu", lambda x, scale: x / (1 + x.abs()) * scale, layout="strided")
    op.register_fake(lambda x, scale=1.0: x.new_empty(x.shape))
    return op


@mutation("layout", *FINDERS)
def row_stride_taken_from_the_width(name: str) -> opsmith.Op:
    """Rows with a gap between them are walked over by their width."""
    op = sound.normalised(name)

    def kernel(x: Tensor, weight: Tensor) -> Tensor:
        unit = x.ndim > 1 and x.stride(-1) == 1
        return sound.normalised_kernel(_in_memory_order(x) if unit else x.contiguous(), weight.contiguous())

    op.register_kernel("cpu", kernel, layout="strided")
    return op
