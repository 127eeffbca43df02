"""Arithmetic on a reference's float and int arguments themselves: `scale * 2`, `math.sqrt(scale)`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from .functions import Builder, Value
from .functions.core import primitive

_FUNCTIONS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.neg: "neg",
    operator.pow: "pow_general", operator.abs: "absolute", abs: "absolute", operator.mod: "remainder",
    operator.floordiv: "floor_divide", operator.pos: "pos",
    math.sqrt: "sqrt", math.exp: "exp", math.log: "log", math.log2: "log2", math.log10: "log10", math.log1p: "log1p",
    math.expm1: "expm1", math.sin: "sin", math.cos: "cos", math.tan: "tan", math.tanh: "tanh", math.sinh: "sinh",
    math.cosh: "cosh", math.asin: "asin", math.acos: "acos", math.atan: "atan", math.atan2: "atan2", math.erf: "erf",
    math.erfc: "erfc", math.pow: "pow_general", math.floor: "floor", math.ceil: "ceil", math.fabs: "absolute",
}  # fmt: skip
_FUNCTIONS.update({
    getattr(operator, f"i{name}"): _FUNCTIONS[getattr(operator, name)]
    for name in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv")
})  # fmt: skip
_COMPARISONS: dict[Any, str] = {
    operator.lt: "less", operator.le: "less_equal", operator.gt: "greater", operator.ge: "greater_equal",
    operator.eq: "equal", operator.ne: "not_equal",
}  # fmt: skip
DTYPES: dict[type, torch.dtype] = {float: torch.float64, int: torch.int64, bool: torch.bool}


def is_scalar_function(target: Any) -> bool:
    try:
        return target in _FUNCTIONS or target in _COMPARISONS
    except TypeError:
        return False


def build(builder: Builder, target: Any, args: Sequence[Any], example: Any) -> Value | None:
    """The value of a function of numbers, by Python's rules for floats and integers; None if a kernel cannot compute
    it."""
    if target in _COMPARISONS:
        common = torch.float64 if any(_example_type(arg) is float for arg in args) else torch.int64
        return builder.compare(_COMPARISONS[target], *[builder.converted(arg, common) for arg in args])
    name = _FUNCTIONS.get(target)
    if name is None or type(example) not in DTYPES:
        return None
    dtype = DTYPES[type(example)]
    through = torch.float64 if name in ("floor", "ceil") else dtype
    values = [builder.converted(arg, through) for arg in args]
    if name == "pos":
        return values[0]
    if name == "pow_general" and dtype is torch.int64:
        if values[1].number() is None:
            return None  # an integer for an exponent of 2, a float for -2
        name = "integer_pow"
    return builder.cast(builder.call(primitive(name), values, through), dtype)


def _example_type(arg: Any) -> type:
    return type(arg.example) if isinstance(arg, Value) else type(arg)
