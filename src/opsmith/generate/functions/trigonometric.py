"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from typing import Any

from .core import Call, Value, binary, define, of, translates, unary

unary("sin", lambda g, x, y: (g * of("cos", x),))
unary("cos", lambda g, x, y: (g * -of("sin", x),))
unary("tan", lambda g, x, y: (g * (1 + y * y),))
unary("asin", lambda g, x, y: (g * of("rsqrt", 1 - x * x),), names=("asin", "arcsin"))
unary("acos", lambda g, x, y: (g * -of("rsqrt", 1 - x * x),), names=("acos", "arccos"))
unary("atan", lambda g, x, y: (g / (x * x + 1),), names=("atan", "arctan"))
unary("sinh", lambda g, x, y: (g * of("cosh", x),))
unary("cosh", lambda g, x, y: (g * of("sinh", x),))
unary("asinh", lambda g, x, y: (g * of("rsqrt", x * x + 1),), names=("asinh", "arcsinh"))
unary("acosh", lambda g, x, y: (g * of("rsqrt", x * x - 1),), names=("acosh", "arccosh"))
unary("atanh", lambda g, x, y: (g / (1 - x * x),), names=("atanh", "arctanh"))
define("tanh", lambda g, x, y: (g * (1 - y * y),))


@translates("tanh")
def tanh(call: Call, input: Any) -> Value:
    x = call.operand(input)
    inner = x.node
    # tanh(softplus(x)), which mish uses, is one exponential and one division instead of three transcendentals.
    if inner.function is not None and inner.function.name == "softplus_beta":
        argument, beta, threshold = (x.builder.value(arg) for arg in inner.args)
        if beta.number() == 1 and threshold.number() == 20:
            return of("tanh_softplus", argument)
    return of("tanh", x)


def _bounded_exp(x: Value) -> Value:
    """Beyond 20, 1 - tanh(softplus(x)) is below any rounding error, and the exponential must not overflow."""
    return of("exp", (x > 20).where(20, x))


def _tanh_softplus(x: Value) -> Value:
    """tanh(log(1 + e^x)) = m / (m + 2) with m = e^2 + 2 e."""
    e = _bounded_exp(x)
    m = e * (e + 2)
    return m / (m + 2)


def _tanh_softplus_beside_slope(x: Value) -> Value:
    """The same where the slope is computed too, which has the reciprocal."""
    e = _bounded_exp(x)
    m = e * (e + 2)
    return m * of("reciprocal", m + 2)


def _tanh_softplus_slope(x: Value) -> Value:
    """d/dx tanh(log(1 + e^x)) = (1 - t^2) sigmoid(x) = 4 e (1 + e) / (m + 2)^2, and exactly 0 beyond 20: the remainder
    times a large x would not be small."""
    e = _bounded_exp(x)
    m = e * (e + 2)
    inverse = of("reciprocal", m + 2)
    return (x > 20).where(0, 4 * e * (1 + e) * (inverse * inverse))


def _tanh_softplus_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    return (g * of("tanh_softplus_slope", x),)


def _tanh_softplus_curvature(g: Value, x: Value, y: Value) -> tuple[Value]:
    t = of("tanh_softplus", x)
    s = of("sigmoid", x)
    return (g * y * (1 - s - 2 * t * s),)


define("tanh_softplus", _tanh_softplus_derivative, expand=_tanh_softplus)
define("tanh_softplus_beside_slope", _tanh_softplus_derivative, expand=_tanh_softplus_beside_slope)
define("tanh_softplus_slope", _tanh_softplus_curvature, expand=_tanh_softplus_slope)


def _atan2_derivative(g: Value, a: Value, b: Value, y: Value) -> tuple[Value, Value]:
    square = a * a + b * b
    scale = square.equals(0).where(0, of("reciprocal", square))
    return g * (b * scale), g * (-a * scale)


def _sinc_slope(x: Value) -> Value:
    at, square = x * math.pi, x * x * math.pi
    return square.equals(0).where(0, (at * of("cos", at) - of("sin", at)) / square)


binary("atan2", _atan2_derivative, names=("atan2", "arctan2"))
unary("sinc", lambda g, x, y: (g * _sinc_slope(x),))
