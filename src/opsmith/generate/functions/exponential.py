"""Exponentials, logarithms, error functions, and functions built from them."""

from __future__ import annotations

import math
from typing import Any

from .core import Call, Value, binary, define, of, translates, unary

_LN2, _LN10 = math.log(2), math.log(10)
_TWO_OVER_ROOT_PI, _HALF_ROOT_PI = 2 / math.sqrt(math.pi), math.sqrt(math.pi) / 2


unary("exp", lambda g, x, y: (g * y,))
unary("exp2", lambda g, x, y: (g * y * _LN2,))
unary("expm1", lambda g, x, y: (g * (y + 1),))
unary("log", lambda g, x, y: (g / x,))
unary("log2", lambda g, x, y: (g / (x * _LN2),))
unary("log10", lambda g, x, y: (g / (x * _LN10),))
unary("log1p", lambda g, x, y: (g / (x + 1),))
unary("erf", lambda g, x, y: (_TWO_OVER_ROOT_PI * of("exp", -(x * x)) * g,))
unary("erfc", lambda g, x, y: (-_TWO_OVER_ROOT_PI * of("exp", -(x * x)) * g,))
unary("erfinv", lambda g, x, y: (_HALF_ROOT_PI * of("exp", y * y) * g,))
unary("sigmoid", lambda g, x, y: (g * (1 - y) * y,), names=("sigmoid", "expit"))

define("softplus", lambda g, x, y: (g * of("sigmoid", x),))
define("normal_pdf", lambda g, x, y: (-g * (x * y),))
define("normal_cdf", lambda g, x, y: (g * of("normal_pdf", x),))

# d/da log(e^a + e^b) = 1 / (1 + e^(b-a)): torch's form, which is 0 or 1 where the exponential overflows or vanishes.
binary("logaddexp", lambda g, a, b, y: (g / (1 + of("exp", b - a)), g / (1 + of("exp", a - b))))
binary("logaddexp2", lambda g, a, b, y: (g / (1 + of("exp2", b - a)), g / (1 + of("exp2", a - b))))
binary("xlogy", lambda g, x, b, y: ((x.equals(0) & (b <= 0)).where(0, of("xlogy", g, b)), g * x / b))


def _ndtr(x: Value) -> Value:
    """By erfc away from the middle, so that the tails keep their digits."""
    z = x * math.sqrt(0.5)
    size = of("absolute", z)
    tail = 0.5 * of("erfc", size)
    return (size < math.sqrt(0.5)).where(0.5 + 0.5 * of("erf", z), (z > 0).where(1 - tail, tail))


def _entr(x: Value) -> Value:
    return (x > 0).where(-x * of("log", x), x.equals(0).where(0, x.builder.test("is_nan", x).where(x, -math.inf)))


unary("ndtr", lambda g, x, y: (g * of("normal_pdf", x),), expand=_ndtr)
unary("entr", lambda g, x, y: (g * (-of("log", x) - 1),), expand=_entr)


def _logit(x: Value) -> Value:
    return of("log", x / (1 - x))


def _logit_derivative(g: Value, x: Value, y: Value) -> tuple[Value]:
    outside = (x < 0) | (x > 1)
    return (outside.where(math.nan, g / (x * (1 - x))),)


def _logit_eps(x: Value, eps: Value) -> Value:
    high = 1 - eps
    return _logit((x < eps).where(eps, (x > high).where(high, x)))


def _logit_eps_derivative(g: Value, x: Value, eps: Value, y: Value) -> tuple[Value, None]:
    inside = (x >= eps) & (x <= 1 - eps)
    at = inside.where(x, 0.5)
    return inside.where(g / (at * (1 - at)), 0), None


define("logit", _logit_derivative, expand=_logit)
define("logit_eps", _logit_eps_derivative, expand=_logit_eps)


@translates("logit")
def logit(call: Call, input: Any, eps: Any = None) -> Value:
    x = call.operand(input)
    return of("logit", x) if eps is None else of("logit_eps", x, call.operand(eps))
