"""Norms: modules with the parameters and the state_dict of torch's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops.add_rms_norm import add_rms_norm
from ..ops.group_norm import group_norm
from ..ops.group_norm_silu import group_norm_silu
from ..ops.layer_norm import layer_norm
from ..ops.rms_norm import rms_norm


class LayerNorm(nn.LayerNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, for x [..., *normalized_shape]: torch.nn.LayerNorm."""

    def forward(self, input: Tensor) -> Tensor:
        x = _as_rows(self, input, self.normalized_shape)
        y: Tensor = layer_norm(x, _flat(self.weight), _flat(self.bias), self.eps)
        return y.view(input.shape)


class RMSNorm(nn.RMSNorm):
    """y = x / sqrt(mean(x^2) + eps) * weight, for x [..., *normalized_shape]: torch.nn.RMSNorm.

    Without eps it is the machine epsilon of the input's dtype, as in torch."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = rms_norm(_as_rows(self, x, self.normalized_shape), _flat(self.weight), _eps(self.eps, x))
        return y.view(x.shape)


class AddRMSNorm(nn.RMSNorm):
    """(y, h) with h = x + residual and y = h / sqrt(mean(h^2) + eps) * weight, for x and residual [..., features].

    Its parameters are those of torch.nn.RMSNorm(features); h is the residual of the next layer."""

    def __init__(
        self,
        features: int,
        eps: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(features, eps, True, device, dtype)

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        y, hidden = add_rms_norm(x, residual, self.weight, _eps(self.eps, x))
        return y, hidden


class GroupNorm(nn.GroupNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over each group, for x [batch, channels, ...].

    torch.nn.GroupNorm. Images in channels-last are read in place; in the result each group is contiguous."""

    def forward(self, input: Tensor) -> Tensor:
        y: Tensor = group_norm(*_groups(self, input), self.eps)
        return y.flatten(1, 2)


class GroupNormSiLU(nn.GroupNorm):
    """y = silu(group_norm(x)), for x [batch, channels, ...]: torch.nn.GroupNorm, then torch.nn.SiLU, as one kernel."""

    def forward(self, input: Tensor) -> Tensor:
        y: Tensor = group_norm_silu(*_groups(self, input), self.eps)
        return y.flatten(1, 2)


def _as_rows(module: nn.Module, x: Tensor, normalized_shape: tuple[int, ...]) -> Tensor:
    """The normalized dimensions as one."""
    count = len(normalized_shape)
    if tuple(x.shape[-count:]) != tuple(normalized_shape):
        taken = ", ".join(map(str, normalized_shape))
        raise ValueError(f"{type(module).__name__}: x has shape {tuple(x.shape)}; it takes [..., {taken}]")
    return x if count == 1 else x.flatten(-count)


def _flat(parameter: Tensor | None) -> Tensor | None:
    return parameter if parameter is None or parameter.dim() == 1 else parameter.flatten()


def _eps(eps: float | None, x: Tensor) -> float:
    return torch.finfo(x.dtype).eps if eps is None else eps


def _groups(module: nn.GroupNorm, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x [batch, groups, size, ...], and weight and bias [groups, size, 1, ...]."""
    if x.dim() < 2 or x.shape[1] != module.num_channels:
        raise ValueError(
            f"{type(module).__name__}: x has shape {tuple(x.shape)}; it takes [batch, {module.num_channels}, ...]"
        )
    groups = module.num_groups
    shape = (groups, module.num_channels // groups, *(1 for _ in x.shape[2:]))
    weight: Tensor = module.weight if module.affine else x.new_ones(module.num_channels)
    bias: Tensor = module.bias if module.affine else x.new_zeros(module.num_channels)
    return x.unflatten(1, shape[:2]), weight.view(shape), bias.view(shape)
