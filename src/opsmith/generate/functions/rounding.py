"""Rounding and remainders. Their steps have no slope."""

from __future__ import annotations

from typing import Any

from .core import Call, Value, define, translates


def _unary(name: str, *aliases: str) -> None:
    define(name, lambda g, x, y: (None,))

    @translates(name, *aliases)
    def build(call: Call, input: Any) -> Value:
        x = call.operand(input)
        return call.builder.apply(name, x) if x.dtype.is_floating_point else x


_unary("floor")
_unary("ceil")
_unary("trunc", "fix")

define("round", lambda g, x, y: (None,))
define("floor_divide", lambda g, a, b, y: (None, None))
define("remainder", lambda g, a, b, y: (g, -g * a.builder.apply("floor_divide", a, b)))
define("fmod", lambda g, a, b, y: (g, -g * a.builder.apply("trunc", a / b)))


def _trunc_divide(a: Value, b: Value) -> Value:
    if not a.dtype.is_floating_point:
        return a.builder.apply("integer_trunc_divide", a, b)
    return a.builder.apply("trunc", a / b)


define("integer_trunc_divide", infix="trunc_divide({0}, {1})")
define("trunc_divide", lambda g, a, b, y: (None, None), expand=_trunc_divide)


@translates("round")
def round_(call: Call, input: Any, *, decimals: Any = 0) -> Value:
    if isinstance(decimals, Value):
        raise TypeError("decimals is a number in the function itself, not an argument")
    x = call.operand(input)
    if not x.dtype.is_floating_point:
        return x
    apply = call.builder.apply
    if decimals == 0:
        return apply("round", x)
    scale = call.builder.constant(10.0 ** abs(decimals), x.dtype)
    if decimals > 0:
        return apply("round", x * scale) / scale
    return apply("round", x / scale) * scale


@translates("frac")
def frac(call: Call, input: Any) -> Value:
    x = call.operand(input)
    return x - call.builder.apply("trunc", x)


@translates("remainder", "__mod__")
def remainder(call: Call, input: Any, other: Any) -> Value:
    return call.builder.apply("remainder", *call.operands(input, other))


@translates("fmod")
def fmod(call: Call, input: Any, other: Any) -> Value:
    return call.builder.apply("fmod", *call.operands(input, other))
