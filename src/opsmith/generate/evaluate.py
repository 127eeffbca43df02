"""Expressions run by torch's own operators: differentiable to any order, and right wherever no kernel can be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .expression import Constant, Input, Node, Scalar, walk
from .text import HALF, computed_in

_SPECIAL: dict[str, Callable[..., Any]] = {
    "neg": torch.neg, "absolute": torch.abs, "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift, "pow_general": torch.pow, "integer_pow": torch.pow,
    "less_equal": torch.le, "greater_equal": torch.ge, "equal": torch.eq, "not_equal": torch.ne,
    "select": torch.where, "is_nan": torch.isnan, "is_inf": torch.isinf, "is_finite": torch.isfinite,
    "sign_bit": torch.signbit, "normal_cdf": torch.special.ndtr, "sinc": torch.sinc,
    "integer_trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "softplus": lambda x: -torch.nn.functional.logsigmoid(-x),
    "normal_pdf": lambda x: torch.exp(-0.5 * x * x) * 0.3989422804014327,
}  # fmt: skip


def evaluate(
    roots: Sequence[Node], tensors: Sequence[torch.Tensor | None], scalars: Callable[[Scalar], Any], device: Any
) -> list[torch.Tensor]:
    """The values of expressions, broadcast as their inputs are."""
    values: dict[Node, Any] = {}
    for node in walk(roots):
        if isinstance(node, Input):
            tensor = tensors[node.slot]
            assert tensor is not None
            values[node] = tensor.to(node.dtype)
        elif isinstance(node, Constant):
            values[node] = torch.tensor(node.value, dtype=node.dtype, device=device)
        elif isinstance(node, Scalar):
            values[node] = torch.tensor(scalars(node), dtype=node.dtype, device=device)
        else:
            assert node.function is not None
            args = [values[arg] for arg in node.args]
            if node.function.name == "cast":
                values[node] = args[0].to(node.dtype)
                continue
            args = [arg.to(computed_in(arg.dtype)) if arg.dtype in HALF else arg for arg in args]
            function = _SPECIAL.get(node.function.name) or getattr(torch, node.function.name)
            values[node] = function(*args)
    return [values[root] for root in roots]
