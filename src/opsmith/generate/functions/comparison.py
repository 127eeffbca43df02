"""Comparisons, logic, choice, the smaller and the larger."""

from __future__ import annotations

import math
from typing import Any

import torch

from .core import Call, Value, define, translates

for comparison in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
    define(comparison)
for logic in ("logical_and", "logical_or", "logical_xor", "logical_not", "is_nan", "is_inf", "is_finite", "sign_bit"):
    define(logic)
define("select", lambda g, c, a, b, y: (None, c.where(g, 0), c.where(0, g)))


def _compares(primitive: str, *names: str) -> None:
    @translates(*names)
    def build(call: Call, input: Any, other: Any) -> Value:
        return call.builder.compare(primitive, *call.common(input, other))


_compares("less", "lt", "less")
_compares("less_equal", "le", "less_equal")
_compares("greater", "gt", "greater")
_compares("greater_equal", "ge", "greater_equal")
_compares("equal", "eq")
_compares("not_equal", "ne", "not_equal")


def _logic(name: str) -> None:
    @translates(name)
    def build(call: Call, input: Any, other: Any) -> Value:
        return call.builder.apply(name, call.truth(input), call.truth(other))


for binary in ("logical_and", "logical_or", "logical_xor"):
    _logic(binary)


@translates("logical_not")
def logical_not(call: Call, input: Any) -> Value:
    return ~call.truth(input)


def _tests(primitive: str, name: str) -> None:
    @translates(name)
    def build(call: Call, input: Any) -> Value:
        return call.builder.test(primitive, call.own(input))


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


# --- the smaller and the larger: at a tie each side has half of the gradient ---------------------------------------

define(
    "maximum",
    lambda g, a, b, y: (
        (a < b).where(0, a.equals(b).where(g / 2, g)),
        (a > b).where(0, a.equals(b).where(g / 2, g)),
    ),
)
define(
    "minimum",
    lambda g, a, b, y: (
        (a > b).where(0, a.equals(b).where(g / 2, g)),
        (a < b).where(0, a.equals(b).where(g / 2, g)),
    ),
)


def _fmax_derivative(g: Value, a: Value, b: Value, y: Value) -> tuple[Value, Value]:
    first = (a >= b) | b.builder.test("is_nan", b)
    return first.where(g, 0), first.where(0, g)


def _fmin_derivative(g: Value, a: Value, b: Value, y: Value) -> tuple[Value, Value]:
    first = (a <= b) | b.builder.test("is_nan", b)
    return first.where(g, 0), first.where(0, g)


define("fmax", _fmax_derivative)
define("fmin", _fmin_derivative)


def _binary(name: str, *aliases: str) -> None:
    @translates(name, *aliases)
    def build(call: Call, input: Any, other: Any) -> Value:
        a, b = call.operands(input, other)
        if call.dtype is torch.bool:
            return a | b if name in ("maximum", "fmax") else a & b
        if not call.dtype.is_floating_point:
            return call.builder.apply({"fmax": "maximum", "fmin": "minimum"}.get(name, name), a, b)
        return call.builder.apply(name, a, b)


_binary("maximum")
_binary("minimum")
_binary("fmax")
_binary("fmin")

# --- clamp: the bounds themselves are inside -----------------------------------------------------------------------


def _least(a: Value, b: Value) -> Value:
    return a.builder.apply("minimum", a, b)


def _most(a: Value, b: Value) -> Value:
    return a.builder.apply("maximum", a, b)


define("clamp_min", lambda g, x, lo, y: ((x >= lo).where(g, 0), (x < lo).where(g, 0)), expand=_most)
define("clamp_max", lambda g, x, hi, y: ((x <= hi).where(g, 0), (x > hi).where(g, 0)), expand=_least)
define(
    "clamp",
    lambda g, x, lo, hi, y: (
        ((x >= lo) & (x <= hi)).where(g, 0),
        ((lo < hi) & (x < lo)).where(g, 0),
        ((x > hi) | (hi < lo)).where(g, 0),
    ),
    expand=lambda x, lo, hi: _least(_most(x, lo), hi),
)


@translates("clamp", "clip")
def clamp(call: Call, input: Any, min: Any = None, max: Any = None) -> Value:
    x = call.operand(input)
    if max is None:
        return clamp_min(call, input, min)
    if min is None:
        return clamp_max(call, input, max)
    return call.builder.apply("clamp", x, call.operand(min), call.operand(max))


@translates("clamp_min")
def clamp_min(call: Call, input: Any, min: Any) -> Value:
    return call.builder.apply("clamp_min", *call.operands(input, min))


@translates("clamp_max")
def clamp_max(call: Call, input: Any, max: Any) -> Value:
    return call.builder.apply("clamp_max", *call.operands(input, max))


@translates("heaviside")
def heaviside(call: Call, input: Any, values: Any) -> Value:
    x, at_zero = call.operands(input, values)
    step = x.equals(0).where(at_zero, (x > 0).where(call.builder.constant(1, x.dtype), 0))
    return call.builder.apply("detach", step)


def _finite_derivative(g: Value, x: Value, *rest: Value) -> tuple[Value, None, None, None]:
    return g.builder.test("is_finite", x).where(g, 0), None, None, None


def _nan_to_num(x: Value, nan: Value, high: Value, low: Value) -> Value:
    test = x.builder.test
    return test("is_nan", x).where(nan, x.equals(math.inf).where(high, x.equals(-math.inf).where(low, x)))


define("nan_to_num", _finite_derivative, expand=_nan_to_num)


@translates("nan_to_num")
def nan_to_num(call: Call, input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    x = call.operand(input)
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(call.result_dtype)
    return call.builder.apply(
        "nan_to_num",
        x,
        call.operand(0.0 if nan is None else nan),
        call.operand(limits.max if posinf is None else posinf),
        call.operand(limits.min if neginf is None else neginf),
    )
