"""What an autocast region does to an operator's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..reference.signature import flatten, unflatten

if TYPE_CHECKING:
    from .operator import Operator

KEY_NAMES = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def cast(operator: Operator, device: str, args: Sequence[Any]) -> Sequence[Any]:
    """The arguments cast by the op's policy: floating-point tensors of that device, except float64."""
    policy = operator.autocast[device]
    if policy == "keep":
        return args
    target = torch.get_autocast_dtype(device) if policy == "lower" else torch.float32 if policy == "float32" else policy
    assert isinstance(target, torch.dtype)
    cast_args: list[Any] = []
    for argument, value in zip(operator.signature.arguments, args, strict=True):
        if argument.is_tensor and not argument.mutated:  # a mutated tensor must be written itself, not a copy
            tensors = flatten([argument], [value])
            tensors = [t.to(target) if t is not None and _eligible(t, device) else t for t in tensors]
            (value,) = unflatten([argument], [value], tensors)
        cast_args.append(value)
    return cast_args


def cast_where_enabled(operator: Operator, args: Sequence[Any]) -> Sequence[Any]:
    """The same for code that the dispatcher reaches before the autocast keys."""
    for device in operator.autocast:
        if torch.is_autocast_enabled(device):
            args = cast(operator, device, args)
    return args


def _eligible(tensor: torch.Tensor, device: str) -> bool:
    return tensor.is_floating_point() and tensor.device.type == device and tensor.dtype != torch.float64
