"""Rounding and remainders. Steps have no gradient."""

from __future__ import annotations

from typing import Any

from .core import Call, Value, binary, define, formula, of, translates


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
