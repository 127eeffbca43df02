"""Who is measured: the op, its named kernels, and what its users have without it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import OpsmithError
from ..op import Op
from ..schema import split_name

OPSMITH = "opsmith"
BASELINES = ("eager", "compile", "compile-max", "liger")

Function = Callable[[Sequence[Any]], Any]


class UnavailableError(OpsmithError):
    """A contender that cannot be had here, with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is not measured: {reason}")


def contender(op: Op, name: str) -> Function:
    """A function of the op's arguments in schema order. Raises UnavailableError."""
    if name == OPSMITH:
        return _called(op, op)
    if name == "eager":
        return _called(op, op.reference)
    if name in ("compile", "compile-max"):
        torch._dynamo.reset()
        mode = "max-autotune-no-cudagraphs" if name == "compile-max" else None
        return _called(op, torch.compile(op.reference, mode=mode, fullgraph=True, dynamic=False))
    if name == "liger":
        return _liger(op)
    if name not in op.variants:
        known = ", ".join((*BASELINES, *op.variants))
        raise UnavailableError(name, f"{op.name} has no such kernel; there are {known}")
    variant = op.variants[name]
    return lambda values: variant(*op.default.forward.arranged(values))


def _called(op: Op, function: Callable[..., Any]) -> Function:
    if not any(argument.keyword_only for argument in op.signature.arguments):
        return lambda values: function(*values)

    def arranged(values: Sequence[Any]) -> Any:
        positional, keyword = op.default.forward.arranged(values)
        return function(*positional, **keyword)

    return arranged


_LIGER = {
    "swiglu": ("liger_kernel.ops.swiglu", "LigerSiLUMulFunction"),
    "geglu": ("liger_kernel.ops.geglu", "LigerGELUMulFunction"),
}
"""By the op's name: the autograd function of the same two arguments."""


def _liger(op: Op) -> Function:
    if importlib.util.find_spec("liger_kernel") is None:
        raise UnavailableError("liger", "liger-kernel is not installed")
    _, base = split_name(op.name)
    if base not in _LIGER:
        raise UnavailableError("liger", f"it has no {base}")
    module, name = _LIGER[base]
    function = getattr(importlib.import_module(module), name)
    return lambda values: function.apply(*values)
