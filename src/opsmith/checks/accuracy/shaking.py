"""How much a computation moves when what it rounds is rounded otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

STEP = torch.finfo(torch.float32).eps


class Roundings(TorchDispatchMode):
    """Inside, every number that float32 would have to round goes a step of float32 up or down, by coins of a seed: the
    inputs' roundings are one thing, those of what is computed on the way are another. For computations in float64."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tosses = 1000.0 * seed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        if any(each.alias_info is not None for each in func._schema.returns):
            return returned  # the memory of another, which is changed where it is made
        return tree_map(self._shaken, returned)

    def _shaken(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.float64 or not value.numel():
            return value
        self._tosses += 1.0
        number = torch.arange(value.numel(), dtype=torch.float64, device=value.device).reshape(value.shape)
        coins = torch.sin(12.9898 * number + 78.233 * self._tosses).sign()
        rounded = value != value.to(torch.float32).to(torch.float64)
        return torch.where(rounded, value * (1 + coins * STEP), value)
