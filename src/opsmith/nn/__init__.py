"""Modules over the shipped ops. Each is imported, and its op declared, on first access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .activations import AddTwo, Mish, Polynomial, Square, Swish
    from .convrnn import ConvRNN
    from .scale_bias_relu import FusedLinear, ScaleBiasReLU
    from .swiglu import SwiGLU

__all__ = ["AddTwo", "ConvRNN", "FusedLinear", "Mish", "Polynomial", "ScaleBiasReLU", "Square", "SwiGLU", "Swish"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(("AddTwo", "Mish", "Polynomial", "Square", "Swish"), ".activations"),
        **dict.fromkeys(("FusedLinear", "ScaleBiasReLU"), ".scale_bias_relu"),
        "ConvRNN": ".convrnn",
        "SwiGLU": ".swiglu",
    },
)
