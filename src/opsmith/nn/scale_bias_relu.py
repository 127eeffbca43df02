"""ScaleBiasReLU: scale, learnable bias and ReLU in one pass."""

from __future__ import annotations

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
