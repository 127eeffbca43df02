"""geglu: gelu(gate) * up."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::geglu")
def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """y = gelu(gate) * up, for gate [...], up [...] and y [...]: torch.nn.functional.gelu(gate) * up.

    `approximate` is gelu's: "none", or "tanh"."""
    return torch.nn.functional.gelu(gate, approximate=approximate) * up


@geglu.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, gate in tensors(device, dtype):
        if name == "infinities":
            continue  # torch's GELU of +inf is NaN in float32 on some CPUs, and inf elsewhere
        yield opsmith.Sample(args=(gate, torch.randn_like(gate)), name=name)
    halves = torch.randn(24, 80, device=device, dtype=dtype).chunk(2, dim=-1)
    yield opsmith.Sample(args=(*halves, "tanh"), name="by tanh, halves of one projection")


@geglu.register_cost
def cost(gate: Tensor, up: Tensor, approximate: str = "none") -> opsmith.Cost:
    return least(gate, up, flops=6 if approximate == "none" else 10)
