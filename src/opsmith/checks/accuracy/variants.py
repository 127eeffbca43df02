"""The reference computed in other ways: in float64 where it casts to float32, with other roundings, other inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .evaluate import Change

STEP = torch.finfo(torch.float32).eps
FAR = torch.finfo(torch.float32).eps / 2**10
"""Relative to the largest number: larger than float64's rounding errors, smaller than float32's."""


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
        elif func is not torch.Tensor.view and any(value is torch.float32 for value in (*args, *kwargs.values())):
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


class Roundings(TorchDispatchMode):
    """Inside, every float64 result that float32 would round moves by a step of float32 up or down, at random: rounding
    errors of intermediates, where `shaken` changes the inputs."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tosses = 1000.0 * seed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        if any(each.alias_info is not None for each in func._schema.returns):
            return returned  # a view: its base was changed already
        return tree_map(self._shaken, returned)

    def _shaken(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.float64 or not value.numel():
            return value
        self._tosses += 1.0
        number = torch.arange(value.numel(), dtype=torch.float64, device=value.device).reshape(value.shape)
        coins = torch.sin(12.9898 * number + 78.233 * self._tosses).sign()
        rounded = value != value.to(torch.float32).to(torch.float64)
        return torch.where(rounded, value * (1 + coins * STEP), value)


def shaken(seed: int, row: int, step: float) -> Change:
    """For one evaluation: each element of each tensor moves a step up or down at random, and each tensor is multiplied
    by its sign in one row of a Hadamard matrix. Over all rows, the squared changes of a result add up to the sum of
    those for each tensor alone: no two can cancel."""
    generator = torch.Generator().manual_seed(seed)
    number = itertools.count()

    def change(tensor: torch.Tensor) -> torch.Tensor:
        coins = torch.randint(0, 2, (tensor.numel(),), generator=generator).reshape(tensor.shape)
        sign = -1.0 if (row & next(number)).bit_count() % 2 else 1.0
        return tensor * (1 + sign * (2.0 * coins.to(tensor) - 1.0) * step)

    return change


def strewn(seed: int, step: float) -> Change:
    """For one evaluation: each element moves by a random part of a step, so that no two stay equal."""
    generator = torch.Generator().manual_seed(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        parts = torch.rand(tensor.numel(), generator=generator, dtype=torch.float64).reshape(tensor.shape)
        return tensor * (1 + (2.0 * parts.to(tensor) - 1.0) * step)

    return change


def nearby(factor: float, dtype: torch.dtype | None = None) -> Change:
    """Scales by a factor, computed in a dtype: that of the tensor by default."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        narrow = tensor.dtype if dtype is None else dtype.to_complex() if tensor.is_complex() else dtype
        return (tensor.to(narrow) * factor).to(tensor.dtype)

    return change
