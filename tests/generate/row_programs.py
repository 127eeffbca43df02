"""Random row programs: a reference as the source of a function, and tensors for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

ELEMENTS = [
    "torch.tanh({a})", "torch.sigmoid({a})", "torch.exp(-({a}).abs())", "({a}).abs().sqrt()", "({a}).square()",
    "({a}) * ({b})", "({a}) + ({b})", "({a}) - 0.5 * ({b})", "({a}) / (1 + ({b}).square())",
    "torch.where(({a}) > ({b}), ({a}), 0.25)", "torch.relu({a})", "({a}).clamp(-1, 0.75)", "torch.maximum({a}, {b})",
    "torch.where(torch.arange(x.shape[-1], device=x.device) < x.shape[-1] // 2, {a}, {b})",
    "({a}).masked_fill(mask, 0.5)",
    "torch.softmax({a}, -1)", "torch.log_softmax({a}, -1)", "F.normalize({a}, dim=-1)",
    "F.layer_norm({a}, x.shape[-1:], row, None, 1e-3)",
]  # fmt: skip
"""Of elements `a` and `b`, to elements."""
REDUCTIONS = [
    "({a}).sum(-1, keepdim=True)", "({a}).mean(-1, keepdim=True)", "({a}).amax(-1, keepdim=True)",
    "({a}).amin(-1)[..., None]", "({a}).var(-1, keepdim=True, correction=0)",
    "({a}).std(-1, correction=0).unsqueeze(-1)",
    "torch.logsumexp({a}, -1, keepdim=True)", "torch.linalg.vector_norm({a}, dim=-1, keepdim=True)",
    "({a}).norm(1, dim=-1, keepdim=True)", "({a} + 0 * x).gather(-1, index[..., None])",
    "({a}).max(-1, keepdim=True).values",
]  # fmt: skip
"""Of elements, to one value per row."""
OF_ROWS = [
    "torch.tanh({a})",
    "({a}) * ({b})",
    "({a}) - ({b})",
    "1 / (1 + ({a}).square())",
    "({a}) * scale",
    "({a}) / x.shape[-1]",
]
LEAVES = ["x", "y", "row", "x * row", "x + y", "y * column[..., None]"]


@dataclass
class RowProgram:
    """The body of a function of (x, y, row, column, index, mask, scale)."""

    lines: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        return "\n".join(
            ["def program(x, y, row, column, index, mask, scale):", *(f"    {line}" for line in self.lines)]
        )

    def function(self, results: int) -> Callable[..., Any]:
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(self.source, scope)
        function: Callable[..., Any] = scope["program"]
        function.__annotations__ = {
            **dict.fromkeys(("x", "y", "row", "column", "index", "mask"), Tensor),
            "scale": float,
            "return": Tensor if results == 1 else tuple[(Tensor,) * results],  # type: ignore[misc]
        }
        return function


@st.composite
def programs(draw: st.DrawFn) -> tuple[RowProgram, int]:
    """A program, and the number of its results."""
    program = RowProgram()
    elements, rows = list(LEAVES), ["column[..., None]"]

    def named(kind: str, text: str) -> str:
        name = f"{kind}{len(program.lines)}"
        program.lines.append(f"{name} = {text}")
        return name

    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["element", "element", "reduction", "reduction", "row"]))
        if kind == "element":
            pool = elements + rows[1:]
            a, b = draw(st.sampled_from(elements)), draw(st.sampled_from(pool))
            elements.append(named("e", draw(st.sampled_from(ELEMENTS)).format(a=a, b=b)))
        elif kind == "reduction":
            rows.append(named("r", draw(st.sampled_from(REDUCTIONS)).format(a=draw(st.sampled_from(elements)))))
        else:
            a, b = draw(st.sampled_from(rows)), draw(st.sampled_from(rows))
            rows.append(named("r", draw(st.sampled_from(OF_ROWS)).format(a=a, b=b)))
    full = f"({elements[-1]}) + 0.125 * x + 0.25 * x.mean(-1, keepdim=True)"  # of every dimension, with a reduction
    results = [full]
    if len(rows) > 1 and draw(st.booleans()):
        # With every leading dimension, which x alone need not give.
        results.append(
            f"({rows[-1]} + x.amax(-1, keepdim=True) * 0)[..., 0]"
            if draw(st.booleans())
            else f"{rows[-1]} + x.sum(-1, keepdim=True)"
        )
    program.lines.append(f"return {', '.join(results)}")
    return program, len(results)


@st.composite
def tensors(draw: st.DrawFn, dtype: torch.dtype, widths: list[int]) -> tuple[Any, ...]:
    """Arguments for a program."""
    width = draw(st.sampled_from(widths))
    leading = draw(st.sampled_from([(1,), (3,), (40,), (2, 5), (0,)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def made(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)

    x = made(*leading, width)
    layout = draw(st.sampled_from(["contiguous", "contiguous", "gaps", "permuted", "repeated"]))
    if layout == "gaps":
        x = made(*leading, 2 * width)[..., ::2]
    elif layout == "permuted" and len(leading) == 2:
        x = made(leading[1], leading[0], width).transpose(0, 1)
    elif layout == "repeated":
        x = made(*(1,) * len(leading), width).expand(*leading, width)
    y = made(*draw(st.sampled_from([(*leading, width), (leading[-1], width), (1, width)])))
    index = torch.randint(0, width, leading, generator=generator)
    mask = torch.randint(0, 2, (*leading, width), generator=generator) > 0
    return x, y, made(width), made(*leading), index, mask, 0.75
