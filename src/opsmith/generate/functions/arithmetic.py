"""Sums, products, quotients, powers, bits, rounding and remainders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .core import Call, Value, binary, define, formula, is_uniform, of, translates, unary

define("add", lambda g, a, b, y: (g, g), infix="{0} + {1}")
define("sub", lambda g, a, b, y: (g, -g), infix="{0} - {1}")
define("mul", lambda g, a, b, y: (g * b, g * a), infix="{0} * {1}")
define("div", lambda g, a, b, y: (g / b, -g * (y / b)), infix="{0} / {1}")
unary("neg", lambda g, x, y: (-g,), infix="-{0}", names=("neg", "negative"))
unary("absolute", lambda g, x, y: (g * of("sign", x),), names=("abs", "absolute"))
unary("sign", lambda g, x, y: (None,), names=("sign", "sgn"))
unary("reciprocal", lambda g, x, y: (-g * (y * y),))
unary("sqrt", lambda g, x, y: (g / (2 * y),))
unary("rsqrt", lambda g, x, y: (-0.5 * g * (y * y * y),))
binary("hypot", lambda g, a, b, y: (g * (a / y), g * (b / y)))
binary("copysign", lambda g, a, b, y: (g * a.equals(0).where(0, y / a), None))
define("detach", lambda g, x, y: (None,), expand=lambda x: x)
formula("positive", by=lambda x: x)
formula("deg2rad", by=lambda x: x * 0.017453292519943295769236907684886)
formula("rad2deg", by=lambda x: x * 57.295779513082320876798154814105)
formula("true_divide", by=lambda a, b: a / b, call=lambda dividend, divisor: (dividend, divisor))


@translates("add")
def add(call: Call, input: Any, other: Any, *, alpha: Any = 1) -> Value:
    a, b = call.operands(input, other)
    if call.dtype is torch.bool:
        return a | b
    return a + (b if alpha == 1 else b * call.operand(alpha))


@translates("sub", "subtract")
def sub(call: Call, input: Any, other: Any, *, alpha: Any = 1) -> Value:
    a, b = call.operands(input, other)
    return a - (b if alpha == 1 else b * call.operand(alpha))


@translates("rsub")
def rsub(call: Call, input: Any, other: Any, *, alpha: Any = 1) -> Value:
    return sub(call, other, input, alpha=alpha)


@translates("mul", "multiply")
def mul(call: Call, input: Any, other: Any) -> Value:
    a, b = call.operands(input, other)
    return a & b if call.dtype is torch.bool else a * b


@translates("div", "divide")
def div(call: Call, input: Any, other: Any, *, rounding_mode: str | None = None) -> Value:
    a, b = call.operands(input, other)
    return a / b if rounding_mode is None else of(f"{rounding_mode}_divide", a, b)


@translates("floor_divide")
def floor_divide(call: Call, input: Any, other: Any) -> Value:
    return div(call, input, other, rounding_mode="floor")


@translates("addcmul")
def addcmul(call: Call, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Value:
    a, b, c = call.operands(input, tensor1, tensor2)
    return a + (b if value == 1 else call.operand(value) * b) * c


@translates("addcdiv")
def addcdiv(call: Call, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Value:
    a, b, c = call.operands(input, tensor1, tensor2)
    return a + (b if value == 1 else call.operand(value) * b) / c


def _lerp(start: Value, end: Value, weight: Value) -> Value:
    small = of("absolute", weight) < 0.5
    return small.where(start + weight * (end - start), end - (end - start) * (1 - weight))


define(
    "lerp",
    lambda g, a, b, w, y: (g * (1 - w), g * w, g * (b - a)),
    expand=_lerp,
    call=lambda input, end, weight: (input, end, weight),
)


# --- powers -----------------------------------------------------------------------------------------------------------


def _power_derivative(g: Value, x: Value, exponent: Value, y: Value) -> tuple[Value | None, Value | None]:
    known = exponent.number()
    if known == 0:
        of_base: Value | None = None
    elif known is not None:
        of_base = g * (exponent * of("pow", x, g.builder.constant(known - 1, x.dtype)))
    else:
        of_base = exponent.equals(0).where(0, g * (exponent * of("pow", x, exponent - 1)))
    if is_uniform(exponent):
        return of_base, None
    flat = x.equals(0) & (exponent >= 0)
    return of_base, g * flat.where(0, y * of("log", x))


_KNOWN_POWERS: dict[Any, Callable[[Value], Value]] = {
    0: lambda x: x.builder.constant(1, x.dtype),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: lambda x: of("sqrt", x),
    -0.5: lambda x: of("rsqrt", x),
    -1: lambda x: of("reciprocal", x),
    -2: lambda x: of("reciprocal", x * x),
}
"""Powers that torch computes by products and roots; the others are pow's."""


def _expand_power(x: Value, exponent: Value) -> Value:
    if not x.dtype.is_floating_point:
        return of("integer_pow", x, exponent)
    known = _KNOWN_POWERS.get(exponent.number())
    return of("pow_general", x, exponent) if known is None else known(x)


define("pow", _power_derivative, expand=_expand_power, call=lambda input, exponent: (input, exponent))
formula("float_power", by=lambda x, exponent: of("pow", x, exponent), call=lambda input, exponent: (input, exponent))
formula("square", by=lambda x: of("pow", x, 2))
formula("ldexp", by=lambda x, exponent: x * of("pow", 2, exponent), call=lambda input, other: (input, other))
define("pow_general", infix="pow({0}, {1})")
define("integer_pow", infix="pow({0}, {1})")


# --- bits -------------------------------------------------------------------------------------------------------------


def _bitwise(which: str, symbol: str) -> None:
    define(f"bitwise_{which}", infix=f"{{0}} {symbol} {{1}}")

    @translates(f"bitwise_{which}", f"__{which}__")
    def build(call: Call, input: Any, other: Any) -> Value:
        name = "logical" if call.dtype is torch.bool else "bitwise"
        return of(f"{name}_{which}", *call.operands(input, other))


_bitwise("and", "&")
_bitwise("or", "|")
_bitwise("xor", "^")
define("bitwise_not", infix="~{0}")


@translates("bitwise_not")
def bitwise_not(call: Call, input: Any) -> Value:
    a = call.operand(input)
    return ~a if call.dtype is torch.bool else of("bitwise_not", a)


define("shift_left", call=lambda input, other: (input, other), names=("bitwise_left_shift",))
define("shift_right", call=lambda input, other: (input, other), names=("bitwise_right_shift",))


# --- rounding and remainders: steps have no gradient ------------------------------------------------------------------


def _rounds(name: str, *aliases: str) -> None:
    define(name, lambda g, x, y: (None,))

    @translates(name, *aliases)
    def build(call: Call, input: Any) -> Value:
        x = call.operand(input)
        return of(name, x) if x.dtype.is_floating_point else x


_rounds("floor")
_rounds("ceil")
_rounds("trunc", "fix")


def _trunc_divide(a: Value, b: Value) -> Value:
    return of("trunc", a / b) if a.dtype.is_floating_point else of("integer_trunc_divide", a, b)


define("round", lambda g, x, y: (None,))
define("floor_divide", lambda g, a, b, y: (None, None))
define("integer_trunc_divide", infix="trunc_divide({0}, {1})")
define("trunc_divide", lambda g, a, b, y: (None, None), expand=_trunc_divide)
formula("frac", by=lambda x: x - of("trunc", x))
binary("remainder", lambda g, a, b, y: (g, -g * of("floor_divide", a, b)), names=("remainder", "__mod__"))
binary("fmod", lambda g, a, b, y: (g, -g * of("trunc", a / b)))


@translates("round")
def round_(call: Call, input: Any, *, decimals: Any = 0) -> Value:
    if isinstance(decimals, Value):
        raise TypeError("decimals is a number in the function itself, not an argument")
    x = call.operand(input)
    if not x.dtype.is_floating_point:
        return x
    if decimals == 0:
        return of("round", x)
    scale = call.builder.constant(10.0 ** abs(decimals), x.dtype)
    return of("round", x * scale) / scale if decimals > 0 else of("round", x / scale) * scale
