"""Modules over the shipped ops. Each is imported, and its op declared, on first access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AddTwo": ".add_two",
        "ConvRNN": ".convrnn",
        "FusedLinear": ".fused_linear",
        "Mish": ".mish",
        "Polynomial": ".polynomial",
        "ScaleBiasReLU": ".scale_bias_relu",
        "Square": ".square",
        "SwiGLU": ".swiglu",
        "Swish": ".swish",
    },
)
