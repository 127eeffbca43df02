"""Sums, products, quotients and powers."""

from __future__ import annotations

from typing import Any

import torch

from .core import Builder, Call, Value, define, is_uniform, translates

define("neg", lambda g, x, y: (-g,), infix="-{0}")
define("add", lambda g, a, b, y: (g, g), infix="{0} + {1}")
define("sub", lambda g, a, b, y: (g, -g), infix="{0} - {1}")
define("mul", lambda g, a, b, y: (g * b, g * a), infix="{0} * {1}")
define("div", lambda g, a, b, y: (g / b, -g * (y / b)), infix="{0} / {1}")
define("reciprocal", lambda g, x, y: (-g * (y * y),))
define("absolute", lambda g, x, y: (g * x.builder.apply("sign", x),))
define("sign", lambda g, x, y: (None,))
define("sqrt", lambda g, x, y: (g / (2 * y),))
define("rsqrt", lambda g, x, y: (-0.5 * g * (y * y * y),))
define("hypot", lambda g, a, b, y: (g * (a / y), g * (b / y)))
define("copysign", lambda g, a, b, y: (g * a.equals(0).where(0, y / a), None))
define("pow_general", infix="pow({0}, {1})")
define("integer_pow", infix="pow({0}, {1})")
define("detach", lambda g, x, y: (None,), expand=lambda x: x)
for bitwise, symbol in (("and", "&"), ("or", "|"), ("xor", "^")):
    define(f"bitwise_{bitwise}", infix=f"{{0}} {symbol} {{1}}")
define("bitwise_not", infix="~{0}")
define("shift_left")
define("shift_right")


def _power_derivative(g: Value, x: Value, exponent: Value, y: Value) -> tuple[Value | None, Value | None]:
    builder = g.builder
    known = exponent.number()
    if known == 0:
        of_base: Value | None = None
    else:
        of_base = g * (exponent * builder.apply("pow", x, exponent - 1))
        if known is not None:
            of_base = g * (exponent * builder.apply("pow", x, builder.constant(known - 1, x.dtype)))
        else:
            of_base = exponent.equals(0).where(0, of_base)
    if is_uniform(exponent):
        return of_base, None
    flat = x.equals(0) & (exponent >= 0)
    return of_base, g * flat.where(0, y * builder.apply("log", x))


def _expand_power(x: Value, exponent: Value) -> Value:
    """The powers that torch computes by products and roots, likewise; the others by C's pow."""
    builder = x.builder
    if not x.dtype.is_floating_point:
        return builder.apply("integer_pow", x, exponent)
    match exponent.number():
        case 0.0:
            return builder.constant(1, x.dtype)
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            return builder.apply("sqrt", x)
        case -0.5:
            return builder.apply("rsqrt", x)
        case -1.0:
            return builder.apply("reciprocal", x)
        case -2.0:
            return builder.apply("reciprocal", x * x)
    return builder.apply("pow_general", x, exponent)


define("pow", _power_derivative, expand=_expand_power)


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
    if rounding_mode is None:
        return a / b
    return call.builder.apply(f"{rounding_mode}_divide", a, b)


@translates("true_divide")
def true_divide(call: Call, dividend: Any, divisor: Any) -> Value:
    return div(call, dividend, divisor)


@translates("floor_divide")
def floor_divide(call: Call, input: Any, other: Any) -> Value:
    return div(call, input, other, rounding_mode="floor")


@translates("neg", "negative")
def neg(call: Call, input: Any) -> Value:
    return -call.operand(input)


@translates("positive")
def positive(call: Call, input: Any) -> Value:
    return call.operand(input)


@translates("abs", "absolute")
def absolute(call: Call, input: Any) -> Value:
    return call.builder.apply("absolute", call.operand(input))


@translates("sign", "sgn")
def sign(call: Call, input: Any) -> Value:
    return call.builder.apply("sign", call.operand(input))


@translates("square")
def square(call: Call, input: Any) -> Value:
    return power(call, input, 2)


@translates("sqrt")
def sqrt(call: Call, input: Any) -> Value:
    return call.builder.apply("sqrt", call.operand(input))


@translates("rsqrt")
def rsqrt(call: Call, input: Any) -> Value:
    return call.builder.apply("rsqrt", call.operand(input))


@translates("reciprocal")
def reciprocal(call: Call, input: Any) -> Value:
    return call.builder.apply("reciprocal", call.operand(input))


@translates("hypot")
def hypot(call: Call, input: Any, other: Any) -> Value:
    return call.builder.apply("hypot", *call.operands(input, other))


@translates("copysign")
def copysign(call: Call, input: Any, other: Any) -> Value:
    return call.builder.apply("copysign", *call.operands(input, other))


@translates("pow")
def power(call: Call, input: Any, exponent: Any) -> Value:
    return call.builder.apply("pow", *call.operands(input, exponent))


@translates("float_power")
def float_power(call: Call, input: Any, exponent: Any) -> Value:
    return power(call, input, exponent)


@translates("addcmul")
def addcmul(call: Call, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Value:
    a, b, c = call.operands(input, tensor1, tensor2)
    return a + (b if value == 1 else call.operand(value) * b) * c


@translates("addcdiv")
def addcdiv(call: Call, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Value:
    a, b, c = call.operands(input, tensor1, tensor2)
    return a + (b if value == 1 else call.operand(value) * b) / c


def _lerp(start: Value, end: Value, weight: Value) -> Value:
    small = _abs(weight) < 0.5
    return small.where(start + weight * (end - start), end - (end - start) * (1 - weight))


def _abs(value: Value) -> Value:
    return value.builder.apply("absolute", value)


define("lerp", lambda g, a, b, w, y: (g * (1 - w), g * w, g * (b - a)), expand=_lerp)


@translates("lerp")
def lerp(call: Call, input: Any, end: Any, weight: Any) -> Value:
    return call.builder.apply("lerp", *call.operands(input, end, weight))


@translates("deg2rad")
def deg2rad(call: Call, input: Any) -> Value:
    return call.operand(input) * 0.017453292519943295769236907684886


@translates("rad2deg")
def rad2deg(call: Call, input: Any) -> Value:
    return call.operand(input) * 57.295779513082320876798154814105


@translates("ldexp")
def ldexp(call: Call, input: Any, other: Any) -> Value:
    x, exponent = call.operands(input, other)
    return x * call.builder.apply("pow", call.builder.constant(2, x.dtype), exponent)


@translates("bitwise_and", "__and__")
def bitwise_and(call: Call, input: Any, other: Any) -> Value:
    return _bits(call, "and", input, other)


@translates("bitwise_or", "__or__")
def bitwise_or(call: Call, input: Any, other: Any) -> Value:
    return _bits(call, "or", input, other)


@translates("bitwise_xor", "__xor__")
def bitwise_xor(call: Call, input: Any, other: Any) -> Value:
    return _bits(call, "xor", input, other)


def _bits(call: Call, which: str, input: Any, other: Any) -> Value:
    a, b = call.operands(input, other)
    builder: Builder = call.builder
    if call.dtype is torch.bool:
        return builder.apply(f"logical_{which}", a, b)
    return builder.apply(f"bitwise_{which}", a, b)


@translates("bitwise_not")
def bitwise_not(call: Call, input: Any) -> Value:
    a = call.operand(input)
    return ~a if call.dtype is torch.bool else call.builder.apply("bitwise_not", a)


@translates("bitwise_left_shift")
def bitwise_left_shift(call: Call, input: Any, other: Any) -> Value:
    return call.builder.apply("shift_left", *call.operands(input, other))


@translates("bitwise_right_shift")
def bitwise_right_shift(call: Call, input: Any, other: Any) -> Value:
    return call.builder.apply("shift_right", *call.operands(input, other))
