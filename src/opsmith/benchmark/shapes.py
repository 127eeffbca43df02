"""Samples of other sizes: `--shape 4096x1024`, or a sweep from 2^10 to 2^30 elements."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch

from ..operator.op import Op
from ..operator.samples import Sample

SCALING = tuple(2**power for power in range(10, 31, 4))
_DIGITS = 15  # of the largest number of elements


def parsed(text: str) -> tuple[int, ...]:
    """'4096x1024', '1048576', '2^20'. Raises ValueError."""
    sizes = []
    for part in text.lower().split("x"):
        found = re.fullmatch(r"\s*(\d+)(?:\^(\d+))?\s*", part)
        if found is None or not int(found[1]):
            raise ValueError(f"{text!r} is not a shape: give sizes separated by x, as in 4096x1024, or 2^20")
        base, power = found[1], found[2] or "1"
        sizes.append(int(base) ** int(power) if len(base) <= _DIGITS and len(power) <= 2 else 10**_DIGITS)
    if math.prod(sizes) >= 10**_DIGITS:
        raise ValueError(f"{text!r} does not fit in any memory")
    return tuple(sizes)


def resized(op: Op, shape: Sequence[int], device: str, dtype: torch.dtype) -> Sample:
    """The op's first non-empty sample, with another shape of its first tensor. The others follow: a dimension that is
    as long as the first tensor's, counted from the right, stays so. The sample's values are repeated, since an op may
    not accept others."""
    signature = op.signature
    for sample in op.samples_for(device, dtype):
        values = signature.bind(sample.args, dict(sample.kwargs))
        tensors = [tensor for tensor in signature.flatten(values) if tensor is not None]
        if all(tensor.numel() for tensor in tensors):
            break
    else:
        raise ValueError(f"{op.name} has no sample with elements to take the values from")
    first = tensors[0]
    fresh = [None if tensor is None else _like(tensor, first.shape, shape) for tensor in signature.flatten(values)]
    filled = signature.unflatten(values, fresh)
    positional, keyword = op.signature.arranged(filled)
    return Sample(tuple(positional), keyword, "x".join(map(str, shape)))


def _like(tensor: torch.Tensor, old: Sequence[int], new: Sequence[int]) -> torch.Tensor:
    shape: list[int] = []
    for place in range(1, tensor.ndim + 1):
        own = tensor.shape[-place]
        linked = place <= len(old) and own == old[-place] and own != 1
        shape.insert(0, new[-place] if linked and place <= len(new) else own)
    if tuple(tensor.shape) == tuple(old):
        shape = list(new)
    if tuple(shape) == tuple(tensor.shape):
        return tensor
    count, flat = math.prod(shape), tensor.flatten()
    return flat.repeat(-(-count // flat.numel()))[:count].reshape(shape)


def described(elements: int) -> str:
    """'16 M', '1 K'."""
    for power, letter in ((30, " G"), (20, " M"), (10, " K")):
        if elements >= 1 << power and math.log2(elements).is_integer():
            return f"{elements >> power}{letter}"
    return f"{elements:,}"
