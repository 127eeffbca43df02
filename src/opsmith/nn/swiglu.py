"""SwiGLU: the gated feed-forward block of transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops.swiglu import swiglu


class SwiGLU(nn.Module):
    """y = down_proj(silu(gate_proj(x)) * up_proj(x)), for x [..., features] and y [..., features].

    gate_proj and up_proj are Linear(features, hidden_features), down_proj is Linear(hidden_features, features); between
    them, the gate and the product are one pass over [..., hidden_features]."""

    def __init__(
        self,
        features: int,
        hidden_features: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(features, hidden_features, bias, device, dtype)
        self.up_proj = nn.Linear(features, hidden_features, bias, device, dtype)
        self.down_proj = nn.Linear(hidden_features, features, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
        return y
