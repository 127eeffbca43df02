"""Runs references that cast to float32, such as those of norms, in float64 nevertheless."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FAR = torch.finfo(torch.float32).eps / 2**10
"""Relative to the largest number: larger than float64's rounding errors, smaller than float32's."""
_REINTERPRETING = (torch.Tensor.view,)
"""Functions whose dtype argument reinterprets bits."""


class InDouble(TorchFunctionMode):
    """Inside, x.float(), x.to(torch.float32) and dtype=torch.float32 give float64: these casts widen half types, and
    would lose digits of float64. `casts_to_single`: whether there was such a cast."""

    def __init__(self) -> None:
        super().__init__()
        self.casts_to_single = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.float:
            self.casts_to_single, func = True, torch.Tensor.double
        elif func not in _REINTERPRETING and any(value is torch.float32 for value in (*args, *kwargs.values())):
            self.casts_to_single = True
            args = tuple(_doubled(value) for value in args)
            kwargs = {name: _doubled(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def digits_are_lost(own: Iterable[torch.Tensor | None], exact: Iterable[torch.Tensor | None]) -> bool:
    """Whether float64 results have errors as large as float32's. (A float32 constant loses no digits.)"""
    pairs = [(one, other) for one, other in zip(own, exact, strict=True) if one is not None and other is not None]
    return any(_are_far(one.double(), other.double()) for one, other in pairs if one.is_floating_point())


def _are_far(own: torch.Tensor, exact: torch.Tensor) -> bool:
    if own.shape != exact.shape:
        return False
    finite = own.isfinite() & exact.isfinite()
    own, exact = own.detach()[finite], exact.detach()[finite]
    return bool(own.numel()) and float((own - exact).abs().max()) > FAR * float(exact.abs().max())


def _doubled(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
