"""Faults of a shape rule."""

from __future__ import annotations

import torch
from torch import Tensor

import opsmith

from . import sound
from .library import mutation

FINDERS = ("fake", "opcheck", "compile", "export")


@mutation("fake", *FINDERS)
def shape_of_another_argument(name: str) -> opsmith.Op:
    """The fake gives the bias' shape."""
    op = sound.shifted(name)
    op.register_fake(lambda x, bias, scale=1.0: torch.empty_like(bias))
    return op


@mutation("fake", *FINDERS)
def always_float32(name: str) -> opsmith.Op:
    """The fake gives float32 whatever comes in."""
    op = sound.shifted(name)
    op.register_fake(lambda x, bias, scale=1.0: x.new_empty(x.shape, dtype=torch.float32))
    return op


@mutation("fake", "fake", "input_layouts", "opcheck", "compile")
def strides_of_the_input(name: str) -> opsmith.Op:
    """empty_like keeps a transposed input's strides; the op returns contiguous tensors."""
    op = sound.softsign(name)
    op.register_fake(lambda x, scale=1.0: torch.empty_like(x))
    return op


@mutation("fake", *FINDERS)
def one_size_fixed(name: str) -> opsmith.Op:
    """The number of rows is written into the fake."""
    op = sound.moments(name)

    def fake(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = 6 if x.shape[0] == 6 else x.shape[0] + 1
        return x.new_empty((rows, *x.shape[1:-1])), x.new_empty((rows, *x.shape[1:-1]))

    op.register_fake(fake)
    return op


@mutation("fake", *FINDERS)
def one_result_too_few(name: str) -> opsmith.Op:
    """The fake of two results gives one twice, of the wrong rank."""
    op = sound.moments(name)
    op.register_fake(lambda x: (x.new_empty(x.shape[:-1]), x.new_empty(x.shape)))
    return op


@mutation("fake", *FINDERS, "functional_transforms")
def reads_data(name: str) -> opsmith.Op:
    """The fake asks for a value, which fake tensors do not have."""
    op = sound.softsign(name)
    op.register_fake(lambda x, scale=1.0: x.new_empty(x.shape) if x.sum().item() < 1e30 else x)
    return op
