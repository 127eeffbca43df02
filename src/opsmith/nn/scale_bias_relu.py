"""ScaleBiasReLU: scale, learnable bias and ReLU in one pass; FusedLinear: the same after a matrix product."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..ops.scale_bias_relu import scale_bias_relu


class ScaleBiasReLU(nn.Module):
    """y = relu(x * scale + bias), for x [..., features] and y [..., features], with a learnable bias [features]."""

    def __init__(
        self,
        features: int,
        scale: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.scale = scale
        self.bias = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = scale_bias_relu(x, self.bias, self.scale)
        return y

    def extra_repr(self) -> str:
        return f"features={self.features}, scale={self.scale}"


class FusedLinear(nn.Module):
    """y = relu(x @ W * scale + bias), for x [..., in_features] and y [..., out_features].

    W is `weight` transposed: weight [out_features, in_features] and bias [out_features] are those of torch.nn.Linear,
    with the same initialization and state_dict. Under autocast the result has the region's dtype, as with Linear."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        product = nn.functional.linear(x, self.weight)
        y: Tensor = scale_bias_relu(product, self.bias.to(product.dtype), self.scale)
        return y

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}"
