"""Ops whose generated text is kept in golden/: a change of the emitters shows there, line by line."""

import torch
from torch import Tensor

import opsmith


@opsmith.pointwise("golden::mish")
def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


@opsmith.pointwise("golden::polynomial")
def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return a * x**3 + b * x**2 + c * x + d


@opsmith.pointwise("golden::scale_bias_relu")
def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
    return torch.relu(x * scale + bias)


def arguments(name: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, number, row = torch.empty(64, 4096, dtype=dtype), torch.empty((), dtype=dtype), torch.empty(4096, dtype=dtype)
    return {"mish": (x,), "polynomial": (x, *[number] * 4), "scale_bias_relu": (x, row)}[name]
