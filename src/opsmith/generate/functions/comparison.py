"""Comparisons, logic, selection, minimum and maximum."""

from __future__ import annotations

import math
from typing import Any

import torch

from .core import Call, Value, define, of, translates


def _compares(name: str, *torch_names: str) -> None:
    define(name)

    @translates(*torch_names)
    def build(call: Call, input: Any, other: Any) -> Value:
        return call.builder.compare(name, *call.common(input, other))


_compares("less", "lt", "less")
_compares("less_equal", "le", "less_equal")
_compares("greater", "gt", "greater")
_compares("greater_equal", "ge", "greater_equal")
_compares("equal", "eq")
_compares("not_equal", "ne", "not_equal")


def _logic(name: str) -> None:
    define(name)

    @translates(name)
    def build(call: Call, input: Any, other: Any) -> Value:
        return of(name, call.truth(input), call.truth(other))


_logic("logical_and")
_logic("logical_or")
_logic("logical_xor")
define("logical_not")


@translates("logical_not")
def logical_not(call: Call, input: Any) -> Value:
    return ~call.truth(input)


def _tests(name: str, torch_name: str) -> None:
    define(name)

    @translates(torch_name)
    def build(call: Call, input: Any) -> Value:
        return call.builder.test(name, call.own(input))


_tests("is_nan", "isnan")
_tests("is_inf", "isinf")
_tests("is_finite", "isfinite")
_tests("sign_bit", "signbit")


@translates("isposinf")
def isposinf(call: Call, input: Any) -> Value:
    return call.own(input).equals(math.inf)


@translates("isneginf")
def isneginf(call: Call, input: Any) -> Value:
    return call.own(input).equals(-math.inf)


define("select", lambda g, c, a, b, y: (None, c.where(g, 0), c.where(0, g)))


@translates("where")
def where(call: Call, condition: Any, input: Any, other: Any) -> Value:
    yes, no = call.operands(input, other)
    return call.truth(condition).where(yes, no)


@translates("tensor.where")
def tensor_where(call: Call, input: Any, condition: Any, other: Any) -> Value:
    return where(call, condition, input, other)


@translates("masked_fill")
def masked_fill(call: Call, input: Any, mask: Any, value: Any) -> Value:
    return where(call, mask, value, input)


# --- minimum and maximum: at a tie each side gets half of the gradient ----------------------------------------------


def _extremum(name: str, derivative: Any) -> None:
    define(name, derivative)

    @translates(name)
    def build(call: Call, input: Any, other: Any) -> Value:
        a, b = call.operands(input, other)
        if call.dtype is torch.bool:
            return a | b if name in ("maximum", "fmax") else a & b
        if not call.dtype.is_floating_point:
            return of({"fmax": "maximum", "fmin": "minimum"}.get(name, name), a, b)
        return of(name, a, b)


def _halved_at_ties(g: Value, a: Value, b: Value) -> Value:
    return a.equals(b).where(g / 2, g)


def _one_side(g: Value, first: Value) -> tuple[Value, Value]:
    return first.where(g, 0), first.where(0, g)


_extremum(
    "maximum",
    lambda g, a, b, y: ((a < b).where(0, _halved_at_ties(g, a, b)), (a > b).where(0, _halved_at_ties(g, a, b))),
)
_extremum(
    "minimum",
    lambda g, a, b, y: ((a > b).where(0, _halved_at_ties(g, a, b)), (a < b).where(0, _halved_at_ties(g, a, b))),
)
_extremum("fmax", lambda g, a, b, y: _one_side(g, (a >= b) | b.builder.test("is_nan", b)))
_extremum("fmin", lambda g, a, b, y: _one_side(g, (a <= b) | b.builder.test("is_nan", b)))

# --- clamp: the gradient at a bound is the inner one -----------------------------------------------------------------


define(
    "clamp_min",
    lambda g, x, lo, y: ((x >= lo).where(g, 0), (x < lo).where(g, 0)),
    expand=lambda x, lo: of("maximum", x, lo),
    call=lambda input, min: (input, min),
)
define(
    "clamp_max",
    lambda g, x, hi, y: ((x <= hi).where(g, 0), (x > hi).where(g, 0)),
    expand=lambda x, hi: of("minimum", x, hi),
    call=lambda input, max: (input, max),
)
define(
    "clamp",
    lambda g, x, lo, hi, y: (
        ((x >= lo) & (x <= hi)).where(g, 0),
        ((lo < hi) & (x < lo)).where(g, 0),
        ((x > hi) | (hi < lo)).where(g, 0),
    ),
    expand=lambda x, lo, hi: of("minimum", of("maximum", x, lo), hi),
)


@translates("clamp", "clip")
def clamp(call: Call, input: Any, min: Any = None, max: Any = None) -> Value:
    bounds = [call.operand(bound) for bound in (min, max) if bound is not None]
    name = "clamp_min" if max is None else "clamp_max" if min is None else "clamp"
    return of(name, call.operand(input), *bounds)


@translates("heaviside")
def heaviside(call: Call, input: Any, values: Any) -> Value:
    x, at_zero = call.operands(input, values)
    return of("detach", x.equals(0).where(at_zero, (x > 0).where(call.builder.constant(1, x.dtype), 0)))


def _nan_to_num(x: Value, nan: Value, high: Value, low: Value) -> Value:
    limits = torch.finfo(x.dtype)
    if (high.number(), low.number()) == (limits.max, limits.min):  # no finite number is beyond them
        finite = of("maximum", of("minimum", x, high), low)
    else:
        finite = x.equals(math.inf).where(high, x.equals(-math.inf).where(low, x))
    return x.builder.test("is_nan", x).where(nan, finite)


define(
    "nan_to_num",
    lambda g, x, *rest: (g.builder.test("is_finite", x).where(g, 0), None, None, None),
    expand=_nan_to_num,
)


@translates("nan_to_num")
def nan_to_num(call: Call, input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    x = call.operand(input)
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(call.result_dtype)
    given = zip((nan, posinf, neginf), (0.0, limits.max, limits.min), strict=True)
    return of("nan_to_num", x, *[call.operand(default if value is None else value) for value, default in given])
