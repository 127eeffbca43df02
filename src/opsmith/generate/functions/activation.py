"""The activations of torch.nn.functional, each with torch's own gradient at its kinks."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..expression import rounded
from .core import Call, Value, define, of, translates


def _zero_or_more(x: Value) -> Value:
    return of("maximum", x, 0)


define("relu", lambda g, x, y: ((y <= 0).where(0, g),), expand=_zero_or_more)
define(
    "threshold",
    lambda g, x, t, v, y: ((x <= t).where(0, g), None, None),
    expand=lambda x, t, v: (x <= t).where(v, x),
)
define(
    "leaky_relu",
    lambda g, x, slope, y: ((x > 0).where(g, g * slope), None),
    expand=lambda x, slope: (x > 0).where(x, x * slope),
)
define(
    "hardtanh",
    lambda g, x, lo, hi, y: (((x > lo) & (x < hi)).where(g, 0), None, None),
    expand=lambda x, lo, hi: of("minimum", of("maximum", x, lo), hi),
)
define(
    "hardsigmoid",
    # torch's own sixth, which is float32's also where it computes in float64.
    lambda g, x, y: (((x > -3) & (x < 3)).where(g * rounded(1 / 6), 0),),
    expand=lambda x: of("minimum", _zero_or_more(x + 3), 6) / 6,
)
define(
    "hardswish",
    lambda g, x, y: ((x <= -3).where(0, (x >= 3).where(g, g * (x / 3 + 0.5))),),
    expand=lambda x: x * of("minimum", _zero_or_more(x + 3), 6) / 6,
)
define(
    "hardshrink",
    lambda g, x, width, y: (((x < -width) | (x > width)).where(g, 0), None),
    expand=lambda x, width: ((x >= -width) & (x <= width)).where(0, x),
)
define(
    "softshrink",
    lambda g, x, width, y: (((x < -width) | (x > width)).where(g, 0), None),
    expand=lambda x, width: (x > width).where(x - width, (x < -width).where(x + width, x * 0)),
)


def _elu(x: Value, alpha: Value, scale: Value, input_scale: Value) -> Value:
    return (x < 0).where(of("expm1", x * input_scale) * (alpha * scale), x * scale)


def _elu_derivative(g: Value, x: Value, alpha: Value, scale: Value, input_scale: Value, y: Value) -> Any:
    positive = x > 0
    # Where x is positive the exponential is not used, and must not overflow in a second derivative either.
    slope = input_scale * (alpha * scale) * of("exp", positive.where(0, x) * input_scale)
    return positive.where(g * scale, g * slope), None, None, None


define("elu", _elu_derivative, expand=_elu)


def _celu_derivative(g: Value, x: Value, alpha: Value, y: Value) -> Any:
    # torch's own coefficient, which is float32's also where it computes in float64.
    inverse = 1 / alpha.to(torch.float32).to(alpha.dtype)
    one = x.builder.constant(1, x.dtype)
    return _elu_derivative(g, x, alpha, one, inverse, y)[0], None


def _celu(x: Value, alpha: Value) -> Value:
    return _elu(x, alpha, x.builder.constant(1, x.dtype), 1 / alpha)


define("celu", _celu_derivative, expand=_celu)


def _softplus(x: Value, beta: Value, threshold: Value) -> Value:
    scaled = x * beta
    return (scaled > threshold).where(x, of("softplus", scaled) / beta)


def _softplus_derivative(g: Value, x: Value, beta: Value, threshold: Value, y: Value) -> tuple[Value, None, None]:
    scaled = x * beta
    return (scaled > threshold).where(g, g * of("sigmoid", scaled)), None, None


define("softplus_beta", _softplus_derivative, expand=_softplus)


def _silu_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    s = of("sigmoid", x)
    return (g * s * (1 + x * (1 - s)),)


def _mish_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    return (g * (of("tanh_softplus_beside_slope", x) + x * of("tanh_softplus_slope", x)),)


def _gelu_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    return (g * (of("normal_cdf", x) + x * of("normal_pdf", x)),)


_GELU_SCALE, _GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_inner(x: Value) -> Value:
    return 2 * _GELU_SCALE * (x + _GELU_CUBIC * (x * x * x))


def _gelu_tanh(x: Value) -> Value:
    """(1 + tanh(u)) / 2 is the sigmoid of 2u: where tanh nears -1, the sum would have few digits left."""
    return x * of("sigmoid", _gelu_tanh_inner(x))


def _gelu_tanh_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    inner = _gelu_tanh_inner(x)
    share, rest = of("sigmoid", inner), of("sigmoid", -inner)  # 1 - share would have few digits near 1
    steep = 2 * _GELU_SCALE * (1 + 3 * _GELU_CUBIC * (x * x))
    return (g * (share + x * (share * rest) * steep),)


define("silu", _silu_derivative, expand=lambda x: x * of("sigmoid", x))
define("mish", _mish_derivative, expand=lambda x: x * of("tanh_softplus", x))
define("gelu", _gelu_derivative, expand=lambda x: x * of("normal_cdf", x))
define("gelu_tanh", _gelu_tanh_derivative, expand=_gelu_tanh)


@translates("relu")
def relu(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("relu", call.operand(input))


@translates("relu6")
def relu6(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("hardtanh", call.operand(input), 0, 6)


@translates("hardtanh")
def hardtanh(call: Call, input: Any, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Value:
    return of("hardtanh", *call.operands(input, min_val, max_val))


@translates("threshold")
def threshold(call: Call, input: Any, threshold: Any, value: Any, inplace: bool = False) -> Value:
    return of("threshold", *call.operands(input, threshold, value))


@translates("leaky_relu")
def leaky_relu(call: Call, input: Any, negative_slope: Any = 0.01, inplace: bool = False) -> Value:
    return of("leaky_relu", *call.operands(input, negative_slope))


@translates("elu")
def elu(call: Call, input: Any, alpha: Any = 1.0, inplace: bool = False) -> Value:
    return of("elu", *call.operands(input, alpha, 1.0, 1.0))


@translates("selu")
def selu(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("elu", *call.operands(input, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0))


@translates("celu")
def celu(call: Call, input: Any, alpha: Any = 1.0, inplace: bool = False) -> Value:
    return of("celu", *call.operands(input, alpha))


@translates("hardsigmoid")
def hardsigmoid(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("hardsigmoid", call.operand(input))


@translates("hardswish")
def hardswish(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("hardswish", call.operand(input))


@translates("hardshrink")
def hardshrink(call: Call, input: Any, lambd: Any = 0.5) -> Value:
    return of("hardshrink", *call.operands(input, lambd))


@translates("softshrink")
def softshrink(call: Call, input: Any, lambd: Any = 0.5) -> Value:
    return of("softshrink", *call.operands(input, lambd))


@translates("softplus")
def softplus(call: Call, input: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Value:
    return of("softplus_beta", *call.operands(input, beta, threshold))


@translates("logsigmoid", "log_sigmoid")
def logsigmoid(call: Call, input: Any) -> Value:
    return -of("softplus", -call.operand(input))


@translates("silu")
def silu(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("silu", call.operand(input))


@translates("mish")
def mish(call: Call, input: Any, inplace: bool = False) -> Value:
    return of("mish", call.operand(input))


@translates("gelu")
def gelu(call: Call, input: Any, approximate: str = "none") -> Value:
    return of("gelu" if approximate == "none" else "gelu_tanh", call.operand(input))


@translates("softsign")
def softsign(call: Call, input: Any) -> Value:
    x = call.operand(input)
    return x / (of("absolute", x) + 1)


@translates("tanhshrink")
def tanhshrink(call: Call, input: Any) -> Value:
    x = call.operand(input)
    return x - of("tanh", x)
