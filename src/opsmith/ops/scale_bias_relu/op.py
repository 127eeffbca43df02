"""scale_bias_relu: scale, bias and ReLU in one pass."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith
from opsmith.kernels import Deferred
from opsmith.kernels.languages import TRITON

from .._elementwise import least, tensors


@opsmith.pointwise("opsmith::scale_bias_relu")
def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
    """y = relu(x * scale + bias), for x [...], y [...] and a bias that broadcasts against them, usually [columns]."""
    return torch.relu(x * scale + bias)


scale_bias_relu.register_kernel("cuda", Deferred(f"{__package__}.triton_kernel", "forward", TRITON), name="triton")
scale_bias_relu.register_backward(
    "cuda",
    Deferred(f"{__package__}.triton_kernel", "backward", TRITON),
    name="triton",
    saves=("x", "bias", "scale"),
)


@scale_bias_relu.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        bias = torch.randn(x.shape[-1:], device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, bias, 0.5), name=name)
    images = torch.randn(2, 5, 6, 7, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    per_channel = torch.randn(5, 1, 1, device=device, dtype=dtype)
    yield opsmith.Sample(args=(images, per_channel), name="a bias for each channel, channels last")


@scale_bias_relu.register_cost
def cost(x: Tensor, bias: Tensor, scale: float = 1.0) -> opsmith.Cost:
    return least(x, bias, flops=3)
