"""References that ask for float32 whatever they are given, as those of norms do, computed in float64 all the same."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_BY_BITS = (torch.Tensor.view,)
"""Functions for which a dtype says how bits are read."""


class InDouble(TorchFunctionMode):
    """Inside, x.float(), x.to(torch.float32) and dtype=torch.float32 are of float64: numbers of half types are widened
    so that nothing is lost, and so that nothing is lost those of float64 stay. `was_asked`: whether any was."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.float:
            self.was_asked, func = True, torch.Tensor.double
        elif func not in _BY_BITS and any(value is torch.float32 for value in (*args, *kwargs.values())):
            self.was_asked = True
            args = tuple(_doubled(value) for value in args)
            kwargs = {name: _doubled(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _doubled(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
