"""gelu: x * Phi(x), with the cumulative distribution function of the normal distribution."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """y = x * Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2, for x [...] and y [...]: torch.nn.functional.gelu(x).

    approximate="tanh": Phi(x) = (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2."""
    return torch.nn.functional.gelu(x, approximate=approximate)


@gelu.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        if name == "infinities":
            continue  # torch's GELU of +inf is NaN in float32 on some CPUs, and inf elsewhere
        yield opsmith.Sample(args=(x,), name=name)
    x = torch.randn(24, 40, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, "tanh"), name="by tanh")


@gelu.register_cost
def cost(x: Tensor, approximate: str = "none") -> opsmith.Cost:
    return least(x, flops=5 if approximate == "none" else 9)
