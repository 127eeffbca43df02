"""Every function of the pointwise table as a call, with what it takes: the tests' own list, held against the
table's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import opsmith

UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "detach",
]
SPECIAL = ["special.entr", "special.ndtr"]
ACTIVATIONS = [
    "relu",
    "relu6",
    "hardtanh",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "hardsigmoid",
    "hardswish",
    "hardshrink",
    "softshrink",
    "softplus",
    "logsigmoid",
    "silu",
    "mish",
    "gelu",
    "softsign",
    "tanhshrink",
]
BINARY = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "float_power",
    "hypot",
    "copysign",
    "atan2",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "ldexp",
    "heaviside",
]
COMPARISONS = ["lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor"]
TESTS = ["isnan", "isinf", "isfinite", "signbit", "isposinf", "isneginf", "logical_not"]
# What a cast makes of infinities differs between devices, in torch as in C++.
SMALL = "a.nan_to_num(0.0, 9.0, -9.0).clamp(-1000, 1000).int()"
INTEGER = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]


@dataclass(frozen=True)
class Call:
    name: str  # in the table
    text: str  # the expression, of a, b and c
    inputs: str  # which of them it takes
    cancels: bool = False  # a small result of large terms: its error is measured against those
    steps: bool = False  # torch has no derivative
    slack: int = 4  # units of the last place that its slope, a difference of terms of order one, may be off


def _in_torch(name: str) -> str:
    return f"torch.{name}" if hasattr(torch, name.split(".")[0]) else f"torch.Tensor.{name}"


CALLS: list[Call] = [
    *[Call(name, f"{_in_torch(name)}(a)", "a", slack=64 if name == "sinc" else 4) for name in UNARY],
    *[Call(name.split(".")[1], f"torch.{name}(a)", "a", name == "special.ndtr") for name in SPECIAL],
    *[Call(name, f"torch.nn.functional.{name}(a)", "a", name in ("tanhshrink", "gelu")) for name in ACTIVATIONS],
    *[Call(name, f"torch.{name}(a, b)", "ab", "log" in name, name in ("floor_divide", "heaviside")) for name in BINARY],
    Call("to", "a.clone().contiguous()", "a"),
    Call("add", "torch.add(a, b, alpha=0.3)", "ab", cancels=True),
    Call("sub", "torch.sub(a, b, alpha=2)", "ab", cancels=True),
    Call("div", "torch.div(a, b, rounding_mode='trunc')", "ab"),
    Call("div", "torch.div(a, b, rounding_mode='floor')", "ab"),
    *[Call("pow", f"a ** {exponent}", "a") for exponent in (-2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 2.5)],
    Call("pow", "2.5 ** a", "a"),
    Call("pow", "0 ** a", "a"),
    Call("round", "torch.round(a, decimals=2)", "a"),
    Call("logit", "torch.logit(a, eps=0.1)", "a"),
    Call("clamp", "torch.clamp(a, -0.5, 0.5)", "a"),
    Call("clamp", "torch.clamp(a, b, c)", "abc"),
    Call("clamp_min", "torch.clamp_min(a, 0.5)", "a"),
    Call("clamp_min", "torch.clamp(a, min=b)", "ab"),
    Call("clamp_max", "torch.clamp(a, max=0.5)", "a"),
    Call("where", "torch.where(a > b, a * 2, b)", "ab"),
    Call("tensor.where", "a.where(a < b, b)", "ab"),
    Call("masked_fill", "a.masked_fill(b > 0, 7.0)", "ab"),
    Call("lerp", "torch.lerp(a, b, 0.3)", "ab", cancels=True),
    Call("lerp", "torch.lerp(a, b, c)", "abc", cancels=True),
    Call("addcmul", "torch.addcmul(a, b, c, value=0.7)", "abc", cancels=True),
    Call("addcdiv", "torch.addcdiv(a, b, c, value=0.7)", "abc", cancels=True),
    Call("nan_to_num", "torch.nan_to_num(a, nan=1.5, posinf=2.0, neginf=-3.0)", "a"),
    Call("gelu", "torch.nn.functional.gelu(a, approximate='tanh')", "a", cancels=True),
    Call("softplus", "torch.nn.functional.softplus(a, beta=2.0, threshold=5.0)", "a"),
    Call("threshold", "torch.nn.functional.threshold(a, 0.5, -2.0)", "a"),
    Call("elu", "torch.nn.functional.elu(a, 0.7)", "a"),
    Call("celu", "torch.nn.functional.celu(a, 0.7)", "a"),
    Call("leaky_relu", "torch.nn.functional.leaky_relu(a, -0.2)", "a"),
    Call("tanh", "a * torch.tanh(torch.nn.functional.softplus(a))", "a"),
    *[Call(name, f"torch.where(torch.{name}(a, b), a, b)", "ab") for name in COMPARISONS],
    *[Call(name, f"torch.where(torch.{name}(a), 2 * a, b)", "ab") for name in TESTS],
    *[Call(name, f"torch.{name}({SMALL}, 3).to(a.dtype) * b", "ab") for name in INTEGER],
    Call("bitwise_not", f"(~{SMALL}).to(a.dtype) * b", "ab"),
    Call("zeros_like", "torch.zeros_like(a) + b", "ab"),
    Call("ones_like", "torch.ones_like(a) * b", "ab"),
    Call("full_like", "torch.full_like(a, 2.5) * b", "ab"),
    Call("to", "a.to(torch.float64).to(torch.float32) * b.double()", "ab"),
    Call("copy_", "(a * 1).copy_(b) * a", "ab"),
    Call("fill_", "(a * 1).fill_(2.0) * b", "ab"),
    Call("zero_", "(a * 1).zero_() + b", "ab"),
    Call("mul", "(a * 1).mul_(b).add_(c)", "abc"),
    Call("abs", "abs(a) - (-b) + (+c)", "abc"),
    Call("remainder", "a % 0.75", "a"),
    Call("floor_divide", "a // 0.75", "a", steps=True),
]


def make(calls: list[Call], name: str) -> opsmith.Op:
    """One op of several calls, each on inputs of its own, so that one compilation serves them all."""
    parameters, results = [], []
    for index, call in enumerate(calls):
        mine = {letter: f"{letter}{index}" for letter in call.inputs}
        parameters += [f"{each}: torch.Tensor" for each in mine.values()]
        formal, given = ", ".join(mine), ", ".join(mine.values())
        results.append(f"(lambda {formal}: {call.text})({given})")
    one = len(results) == 1
    annotation = "torch.Tensor" if one else f"tuple[{', '.join(['torch.Tensor'] * len(results))}]"
    scope_: dict[str, Any] = {"torch": torch}
    exec(f"def op({', '.join(parameters)}) -> {annotation}: return {', '.join(results)}", scope_)
    return opsmith.pointwise(name)(scope_["op"])


def function(call: Call) -> Callable[..., torch.Tensor]:
    return eval(f"lambda {', '.join(call.inputs)}: {call.text}", {"torch": torch})
