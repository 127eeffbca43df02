"""swiglu: silu(gate) * up."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::swiglu")
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """y = gate * sigmoid(gate) * up, for gate [...], up [...] and y [...]: torch.nn.functional.silu(gate) * up."""
    return torch.nn.functional.silu(gate) * up


@swiglu.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, gate in tensors(device, dtype):
        yield opsmith.Sample(args=(gate, torch.randn_like(gate)), name=name)
    halves = torch.randn(24, 80, device=device, dtype=dtype).chunk(2, dim=-1)
    yield opsmith.Sample(args=halves, name="halves of one projection")


@swiglu.register_cost
def cost(gate: Tensor, up: Tensor) -> opsmith.Cost:
    return least(gate, up, flops=5)
