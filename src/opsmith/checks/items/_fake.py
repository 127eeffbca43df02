"""A call on fake tensors: the metadata of its results, and the sizes that become constants."""

from __future__ import annotations

from typing import Any

import torch

from .. import values as call_values
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.truth import Function
from ..cases.case import Case
from ..subject import Subject, present, short


def on_fake(subject: Subject, function: Function, case: Case, gradients: bool) -> list[Named]:
    """Named results and gradients of a call on fake tensors."""
    mode, fakes = _fakes(case, symbolic=False)
    with mode:
        return evaluate(subject.arguments, function, fakes, gradients=gradients)


def described(tensor: torch.Tensor | None) -> str:
    """The metadata that a fake tensor must match. The stride of a dimension of size 1 does not count."""
    if tensor is None:
        return "None"
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    laid_out = f", strides {strides}" if tensor.numel() and strides else ""
    return f"{short(tensor.dtype)}{list(tensor.shape)} on {tensor.device.type}{laid_out}"


def constants(subject: Subject, function: Function, case: Case, gradients: bool) -> set[str]:
    """Sizes that were symbols and are numbers after a call, as 'x.shape[0] == 3'."""
    from torch._dispatch.python import enable_python_dispatcher

    mode, fakes = _fakes(case, symbolic=True)
    symbols: dict[str, Any] = {
        f"{name}.shape[{dim}] == {int(real.shape[dim])}": size
        for (name, _, real), fake in zip(case.named_tensors(), present(subject.arguments, fakes), strict=True)
        for dim, size in enumerate(fake.shape)
        if not isinstance(size, int)
    }
    with mode, enable_python_dispatcher():  # as torch.compile traces: without, torch's own rules fail on symbols
        evaluate(subject.arguments, function, fakes, gradients=gradients)
    return {name for name, symbol in symbols.items() if mode.shape_env.simplify(symbol.node.expr).is_number}


def _fakes(case: Case, symbolic: bool) -> tuple[Any, list[Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    # Without duck shapes, equal sizes have different symbols.
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False) if symbolic else None)

    def fake(tensor: torch.Tensor) -> Any:
        if not symbolic:
            return mode.from_tensor(tensor.detach())
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.ndim)
        return mode.from_tensor(tensor.detach(), symbolic_context=context)

    return mode, call_values.mapped(case.arguments, case.values, fake)
