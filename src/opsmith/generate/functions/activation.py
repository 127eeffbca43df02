"""The activations of torch.nn.functional, each with torch's own gradient at its kinks."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..expression import rounded
from .core import Call, Value, define, formula, of, translates, unary


def _zero_or_more(x: Value) -> Value:
    return of("maximum", x, 0)


unary("relu", lambda g, x, y: ((y <= 0).where(0, g),), expand=_zero_or_more)
define(
    "threshold",
    lambda g, x, t, v, y: ((x <= t).where(0, g), None, None),
    expand=lambda x, t, v: (x <= t).where(v, x),
    call=lambda input, threshold, value, inplace=False: (input, threshold, value),
)
define(
    "leaky_relu",
    lambda g, x, slope, y: ((x > 0).where(g, g * slope), None),
    expand=lambda x, slope: (x > 0).where(x, x * slope),
    call=lambda input, negative_slope=0.01, inplace=False: (input, negative_slope),
)
define(
    "hardtanh",
    lambda g, x, lo, hi, y: (((x > lo) & (x < hi)).where(g, 0), None, None),
    expand=lambda x, lo, hi: of("minimum", of("maximum", x, lo), hi),
    call=lambda input, min_val=-1.0, max_val=1.0, inplace=False: (input, min_val, max_val),
)
unary(
    "hardsigmoid",
    # torch's constant, which is a float32 also for float64.
    lambda g, x, y: (((x > -3) & (x < 3)).where(g * rounded(1 / 6), 0),),
    expand=lambda x: of("minimum", _zero_or_more(x + 3), 6) / 6,
)
unary(
    "hardswish",
    lambda g, x, y: ((x <= -3).where(0, (x >= 3).where(g, g * (x / 3 + 0.5))),),
    expand=lambda x: x * of("minimum", _zero_or_more(x + 3), 6) / 6,
)
define(
    "hardshrink",
    lambda g, x, width, y: (((x < -width) | (x > width)).where(g, 0), None),
    expand=lambda x, width: ((x >= -width) & (x <= width)).where(0, x),
    call=lambda input, lambd=0.5: (input, lambd),
)
define(
    "softshrink",
    lambda g, x, width, y: (((x < -width) | (x > width)).where(g, 0), None),
    expand=lambda x, width: (x > width).where(x - width, (x < -width).where(x + width, x * 0)),
    call=lambda input, lambd=0.5: (input, lambd),
)


def _elu(x: Value, alpha: Value, scale: Value, input_scale: Value) -> Value:
    return (x < 0).where(of("expm1", x * input_scale) * (alpha * scale), x * scale)


def _elu_derivative(g: Value, x: Value, alpha: Value, scale: Value, input_scale: Value, y: Value) -> Any:
    positive = x > 0
    # The exponential is not used if x is positive, and must not overflow in a second derivative either.
    slope = input_scale * (alpha * scale) * of("exp", positive.where(0, x) * input_scale)
    return positive.where(g * scale, g * slope), None, None, None


define("elu", _elu_derivative, expand=_elu, call=lambda input, alpha=1.0, inplace=False: (input, alpha, 1.0, 1.0))


def _celu_derivative(g: Value, x: Value, alpha: Value, y: Value) -> Any:
    # torch's coefficient, which is a float32 also for float64.
    inverse = 1 / alpha.to(torch.float32).to(alpha.dtype)
    one = x.builder.constant(1, x.dtype)
    return _elu_derivative(g, x, alpha, one, inverse, y)[0], None


define(
    "celu",
    _celu_derivative,
    expand=lambda x, alpha: _elu(x, alpha, x.builder.constant(1, x.dtype), 1 / alpha),
    call=lambda input, alpha=1.0, inplace=False: (input, alpha),
)


def _softplus(x: Value, beta: Value, threshold: Value) -> Value:
    scaled = x * beta
    return (scaled > threshold).where(x, of("softplus", scaled) / beta)


def _softplus_derivative(g: Value, x: Value, beta: Value, threshold: Value, y: Value) -> tuple[Value, None, None]:
    scaled = x * beta
    return (scaled > threshold).where(g, g * of("sigmoid", scaled)), None, None


define(
    "softplus_beta",
    _softplus_derivative,
    expand=_softplus,
    call=lambda input, beta=1.0, threshold=20.0: (input, beta, threshold),
    names=("softplus",),
)


def _silu_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    s = of("sigmoid", x)
    return (g * s * (1 + x * (1 - s)),)


_GELU_SCALE, _GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_inner(x: Value) -> Value:
    return 2 * _GELU_SCALE * (x + _GELU_CUBIC * (x * x * x))


def _gelu_tanh(x: Value) -> Value:
    """(1 + tanh(u)) / 2 is the sigmoid of 2u, which loses no digits where tanh is close to -1."""
    return x * of("sigmoid", _gelu_tanh_inner(x))


def _gelu_tanh_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    inner = _gelu_tanh_inner(x)
    share, rest = of("sigmoid", inner), of("sigmoid", -inner)  # 1 - share would have few digits near 1
    steep = 2 * _GELU_SCALE * (1 + 3 * _GELU_CUBIC * (x * x))
    return (g * (share + x * (share * rest) * steep),)


unary("silu", _silu_derivative, expand=lambda x: x * of("sigmoid", x))
unary(
    "mish",
    lambda g, x, y: (g * (of("tanh_softplus_beside_slope", x) + x * of("tanh_softplus_slope", x)),),
    expand=lambda x: x * of("tanh_softplus", x),
)
define(
    "gelu",
    lambda g, x, y: (g * (of("normal_cdf", x) + x * of("normal_pdf", x)),),
    expand=lambda x: x * of("normal_cdf", x),
)
define("gelu_tanh", _gelu_tanh_derivative, expand=_gelu_tanh)
formula("relu6", by=lambda x: of("hardtanh", x, 0, 6))
formula("selu", by=lambda x: of("elu", x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0))
formula("logsigmoid", "log_sigmoid", by=lambda x: -of("softplus", -x))
formula("softsign", by=lambda x: x / (of("absolute", x) + 1))
formula("tanhshrink", by=lambda x: x - of("tanh", x))


@translates("gelu")
def gelu(call: Call, input: Any, approximate: str = "none") -> Value:
    return of("gelu" if approximate == "none" else "gelu_tanh", call.operand(input))
