"""Modules over the shipped ops. Each is imported, and its op declared, on first access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .activations import AddTwo, Mish, Polynomial, Square, Swish
    from .convrnn import ConvRNN
    from .losses import CrossEntropyLoss
    from .norms import AddRMSNorm, GroupNorm, GroupNormSiLU, LayerNorm, RMSNorm
    from .scale_bias_relu import FusedLinear, ScaleBiasReLU
    from .softmax import LogSoftmax, Softmax
    from .swiglu import SwiGLU

__all__ = [
    "AddRMSNorm",
    "AddTwo",
    "ConvRNN",
    "CrossEntropyLoss",
    "FusedLinear",
    "GroupNorm",
    "GroupNormSiLU",
    "LayerNorm",
    "LogSoftmax",
    "Mish",
    "Polynomial",
    "RMSNorm",
    "ScaleBiasReLU",
    "Softmax",
    "Square",
    "SwiGLU",
    "Swish",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(("AddTwo", "Mish", "Polynomial", "Square", "Swish"), ".activations"),
        **dict.fromkeys(("FusedLinear", "ScaleBiasReLU"), ".scale_bias_relu"),
        "ConvRNN": ".convrnn",
        "CrossEntropyLoss": ".losses",
        **dict.fromkeys(("AddRMSNorm", "GroupNorm", "GroupNormSiLU", "LayerNorm", "RMSNorm"), ".norms"),
        **dict.fromkeys(("LogSoftmax", "Softmax"), ".softmax"),
        "SwiGLU": ".swiglu",
    },
)
