"""elementwise_mult: a * b."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::elementwise_mult")
def elementwise_mult(a: Tensor, b: Tensor) -> Tensor:
    """y = a * b, for a [...], b [...] that broadcast to y [...]: torch.mul(a, b), also with `out=`."""
    return a * b


# The same op as C++ and CUDA extensions, selected by `with elementwise_mult.using("extension"):`. They are separate so
# that the C++ one needs no nvcc; each is built when it is first called.
for device, source in (("cpu", "kernel.cpp"), ("cuda", "kernel.cu")):
    extension = opsmith.extension(f"opsmith_elementwise_mult_{device}", Path(__file__).with_name(source), lazy=True)
    elementwise_mult.register_kernel(device, extension.elementwise_mult_forward, name="extension")
    elementwise_mult.register_backward(device, extension.elementwise_mult_backward, name="extension", saves=("a", "b"))


@elementwise_mult.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, a in tensors(device, dtype):
        yield opsmith.Sample(args=(a, torch.randn_like(a)), name=name)
    rows, columns = (torch.randn(shape, device=device, dtype=dtype) for shape in ((24, 1), (1, 40)))
    yield opsmith.Sample(args=(rows, columns), name="outer product")


@elementwise_mult.register_cost
def cost(a: Tensor, b: Tensor) -> opsmith.Cost:
    return least(a, b, flops=1)
