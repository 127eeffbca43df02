"""polynomial: a cubic with learnable coefficients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith
from opsmith.kernels import Deferred
from opsmith.kernels.languages import CUDA

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::polynomial")
def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """y = a*x^3 + b*x^2 + c*x + d, for x [...] and a, b, c, d that broadcast against it, usually []; y [...]."""
    return a * x**3 + b * x**2 + c * x + d


# The same from an inline CUDA string, selected by `with polynomial.using("cuda_string"):`. The first call imports its
# module and the CUDA compiler.
polynomial.register_kernel(
    "cuda", Deferred(f"{__package__}.cuda_string", "forward", CUDA), layout="strided", name="cuda_string"
)
polynomial.register_backward(
    "cuda",
    Deferred(f"{__package__}.cuda_string", "backward", CUDA),
    layout="strided",
    name="cuda_string",
    saves=("x", "a", "b", "c", "d"),
)


@polynomial.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    def coefficients(*shape: int) -> tuple[Tensor, ...]:
        return torch.randn(4, *shape, device=device, dtype=dtype).unbind()

    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x, *coefficients()), name=name)
    x = torch.randn(24, 40, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, *coefficients(40)), name="a cubic for each column")


@polynomial.register_cost
def cost(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> opsmith.Cost:
    return least(x, a, b, c, d, flops=6)
