"""A call on fake tensors: the metadata of its results, and the sizes it specialises on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...reference.signature import Argument, flatten, unflatten
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.truth import Function
from ..subject import present


def on_fake(
    arguments: Sequence[Argument], function: Function, values: Sequence[Any], gradients: bool, symbolic: bool = False
) -> list[Named]:
    """Named results and gradients of a call on fake tensors."""
    mode, fakes = _fakes(arguments, values, symbolic)
    with mode:
        return evaluate(arguments, function, fakes, gradients=gradients)


def described(tensor: torch.Tensor | None) -> str:
    """The metadata that a fake tensor must get right. Strides count where there is more than one element along them."""
    if tensor is None:
        return "None"
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    dtype = str(tensor.dtype).removeprefix("torch.")
    laid_out = f", strides {strides}" if tensor.numel() and strides else ""
    return f"{dtype}{list(tensor.shape)} on {tensor.device.type}{laid_out}"


def constants(arguments: Sequence[Argument], function: Function, values: Sequence[Any], gradients: bool) -> set[str]:
    """Sizes that were symbols and are numbers after a call, as 'x.shape[0] == 3'."""
    from torch._dispatch.python import enable_python_dispatcher

    mode, fakes = _fakes(arguments, values, symbolic=True)
    symbols: dict[str, Any] = {
        f"{name}.shape[{dim}] == {int(real.shape[dim])}": size
        for (name, fake), real in zip(_named(arguments, fakes), present(arguments, values), strict=True)
        for dim, size in enumerate(fake.shape)
        if not isinstance(size, int)
    }
    with mode, enable_python_dispatcher():  # as torch.compile traces: without, torch's own rules fail on symbols
        evaluate(arguments, function, fakes, gradients=gradients)
    return {name for name, symbol in symbols.items() if mode.shape_env.simplify(symbol.node.expr).is_number}


def _fakes(arguments: Sequence[Argument], values: Sequence[Any], symbolic: bool) -> tuple[Any, list[Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    # Without duck shapes every size has a symbol of its own, also where two happen to be equal.
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False) if symbolic else None)

    def fake(tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        if not symbolic:
            return mode.from_tensor(tensor.detach())
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.ndim)
        return mode.from_tensor(tensor.detach(), symbolic_context=context)

    return mode, unflatten(arguments, values, [fake(tensor) for tensor in flatten(arguments, values)])


def _named(arguments: Sequence[Argument], values: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
    found = []
    for argument, value in zip(arguments, values, strict=True):
        for index, tensor in enumerate(flatten([argument], [value])):
            if tensor is not None:
                found.append((f"{argument.name}[{index}]" if isinstance(value, list) else argument.name, tensor))
    return found
