"""Modules over the shipped ops. Each is imported, and its op declared, when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .add_two import AddTwo
    from .convrnn import ConvRNN
    from .fused_linear import FusedLinear
    from .mish import Mish
    from .polynomial import Polynomial
    from .scale_bias_relu import ScaleBiasReLU
    from .square import Square
    from .swiglu import SwiGLU
    from .swish import Swish

__all__ = ["AddTwo", "ConvRNN", "FusedLinear", "Mish", "Polynomial", "ScaleBiasReLU", "Square", "SwiGLU", "Swish"]

_HOMES = {
    "AddTwo": "add_two",
    "ConvRNN": "convrnn",
    "FusedLinear": "fused_linear",
    "Mish": "mish",
    "Polynomial": "polynomial",
    "ScaleBiasReLU": "scale_bias_relu",
    "Square": "square",
    "SwiGLU": "swiglu",
    "Swish": "swish",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
