"""Programs for tests, written with the functions that traced ones are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from opsmith.errors import SourceLine
from opsmith.generate.expression import Form, Interner, Program, Result, program
from opsmith.generate.functions.core import Builder, Value, names
from opsmith.generate.text import computed_in

names()  # enters every function into the table

ORIGIN = SourceLine("ops.py", 12, "def scaled(x, scale):  # ends in a backslash \\")
LINE = SourceLine("ops.py", 13, "return x * scale")


def build(
    name: str,
    dtypes: Sequence[torch.dtype],
    formula: Callable[..., Sequence[Value]],
    results: Sequence[tuple[str, torch.dtype, int | None]],
    read_names: Sequence[str] = ("x", "y", "z", "u", "v", "w"),
    scalars: Sequence[tuple[str, torch.dtype]] = (),
) -> Program:
    """The program of `formula(builder, *inputs, *scalars)`; results are (name, dtype, the slot it is summed like)."""
    builder = Builder(Interner())
    builder.line = LINE
    inputs = [builder.value(builder.interner.input(slot, computed_in(dtype))) for slot, dtype in enumerate(dtypes)]
    arguments = [
        builder.value(builder.interner.scalar(scalar, position, dtype))
        for position, (scalar, dtype) in enumerate(scalars)
    ]
    values = formula(builder, *inputs, *arguments)
    written = [
        Result(result, value.node, dtype, Form.FULL if like is None else like)
        for (result, dtype, like), value in zip(results, values, strict=True)
    ]
    return program(name, written, list(read_names[: len(dtypes)]), list(dtypes), ORIGIN)


def unary(function: Callable[[Builder, Value], Value], dtype: torch.dtype, name: str = "test::unary") -> Program:
    return build(name, [dtype], lambda builder, x: [function(builder, x)], [("output", dtype, None)])


def product(dtype: torch.dtype, other: torch.dtype | None = None) -> Program:
    """x * y, in the wider dtype."""
    second = dtype if other is None else other
    held = torch.promote_types(dtype, second)
    return build(
        "test::product",
        [dtype, second],
        lambda builder, x, y: [x.to(computed_in(held)) * y.to(computed_in(held))],
        [("output", held, None)],
    )


def mish(dtype: torch.dtype) -> Program:
    return unary(lambda builder, x: x * builder.apply("tanh_softplus", x), dtype, "test::mish")


def gelu(dtype: torch.dtype) -> Program:
    return unary(lambda builder, x: x * builder.apply("normal_cdf", x), dtype, "test::gelu")


def polynomial_backward(dtype: torch.dtype) -> Program:
    """The gradients of a + b x + c x^2 + d x^3."""

    def formula(builder: Builder, g: Value, x: Value, b: Value, c: Value, d: Value) -> list[Value]:
        square = x * x
        return [g * (b + x * (2 * c + x * (3 * d))), g, g * x, g * square, g * (square * x)]

    results = [
        ("grad_x", dtype, 1),
        *((f"grad_{name}", dtype, slot) for name, slot in zip("abcd", (2, 2, 3, 4), strict=True)),
    ]
    return build("test::polynomial_backward", [dtype] * 5, formula, results, ["grad_output", "x", "b", "c", "d"])


def affine_backward(dtype: torch.dtype) -> Program:
    """The gradients of relu(x * scale + shift)."""

    def formula(builder: Builder, g: Value, x: Value, scale: Value, shift: Value) -> list[Value]:
        inner = (x * scale + shift <= 0).where(0, g)
        return [inner * scale, inner * x, inner]

    results = [("grad_x", dtype, 1), ("grad_scale", dtype, 2), ("grad_shift", dtype, 3)]
    return build("test::affine_backward", [dtype] * 4, formula, results, ["grad_output", "x", "scale", "shift"])
