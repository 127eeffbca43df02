"""Sums, products, quotients, powers and bits."""

from __future__ import annotations

from typing import Any

import torch

from .core import Call, Value, binary, define, is_uniform, of, translates, unary

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


@translates("true_divide")
def true_divide(call: Call, dividend: Any, divisor: Any) -> Value:
    return div(call, dividend, divisor)


@translates("floor_divide")
def floor_divide(call: Call, input: Any, other: Any) -> Value:
    return div(call, input, other, rounding_mode="floor")


@translates("positive")
def positive(call: Call, input: Any) -> Value:
    return call.operand(input)


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


@translates("deg2rad")
def deg2rad(call: Call, input: Any) -> Value:
    return call.operand(input) * 0.017453292519943295769236907684886


@translates("rad2deg")
def rad2deg(call: Call, input: Any) -> Value:
    return call.operand(input) * 57.295779513082320876798154814105


# --- powers --------------------------------------------------------------------------------------------------------


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


def _expand_power(x: Value, exponent: Value) -> Value:
    """Powers as torch computes them: some by products and roots, the others by pow."""
    if not x.dtype.is_floating_point:
        return of("integer_pow", x, exponent)
    match exponent.number():
        case 0.0:
            return x.builder.constant(1, x.dtype)
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            return of("sqrt", x)
        case -0.5:
            return of("rsqrt", x)
        case -1.0:
            return of("reciprocal", x)
        case -2.0:
            return of("reciprocal", x * x)
    return of("pow_general", x, exponent)


define("pow", _power_derivative, expand=_expand_power, call=lambda input, exponent: (input, exponent))
define("pow_general", infix="pow({0}, {1})")
define("integer_pow", infix="pow({0}, {1})")


@translates("float_power")
def float_power(call: Call, input: Any, exponent: Any) -> Value:
    return of("pow", *call.operands(input, exponent))


@translates("square")
def square(call: Call, input: Any) -> Value:
    return of("pow", call.operand(input), 2)


@translates("ldexp")
def ldexp(call: Call, input: Any, other: Any) -> Value:
    x, exponent = call.operands(input, other)
    return x * of("pow", 2, exponent)


# --- bits ----------------------------------------------------------------------------------------------------------


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
