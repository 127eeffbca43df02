"""The contenders: the op, its named kernels, and the baselines."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .._lazy import import_by_name
from ..errors import UnavailableError
from ..operator.op import Op
from ..reference.signature import split_name

OPSMITH = "opsmith"
BASELINES = ("eager", "compile", "compile-max", "liger")

Function = Callable[[Sequence[Any]], Any]


def contender(op: Op, name: str, device: str) -> Function:
    """A function of the op's arguments in schema order that returns what the op returns. Raises UnavailableError."""
    if name == OPSMITH:
        return _called(op, op)
    if name == "eager":
        return _returning(op, _called(op, op.reference))
    if name in ("compile", "compile-max"):
        torch._dynamo.reset()
        mode = "max-autotune-no-cudagraphs" if name == "compile-max" else None
        return _returning(op, _called(op, torch.compile(op.reference, mode=mode, fullgraph=True, dynamic=False)))
    if name == "liger":
        return _liger(op)
    return _kernel(op, name, device)


@contextlib.contextmanager
def replayable() -> Iterator[None]:
    """Code that is compiled inside can run its backward repeatedly: by default it may overwrite saved tensors."""
    from torch._functorch import config

    with config.patch(donated_buffer=False):
        yield


def _kernel(op: Op, name: str, device: str) -> Function:
    if name not in op._families.named:
        known = ", ".join((*BASELINES, *op._families.named))
        raise UnavailableError(name, f"{op.name} has no such kernel; available: {known}")
    family = op._families.named[name]
    # Without a kernel of that name for the device, a family runs the op's own, which is measured already.
    if not any(given.name == name for (_, where), given in family.given.items() if where == device):
        raise UnavailableError(name, f"{op.name} has no kernel of that name for {device}")
    return lambda values: family(*op.signature.arranged(values))


def _called(op: Op, function: Callable[..., Any]) -> Function:
    if not any(argument.keyword_only for argument in op.signature.arguments):
        return lambda values: function(*values)

    def arranged(values: Sequence[Any]) -> Any:
        positional, keyword = op.signature.arranged(values)
        return function(*positional, **keyword)

    return arranged


def _returning(op: Op, function: Function) -> Function:
    """Makes the reference of an in-place op, which returns nothing, return what it changed, as the op does."""
    places = [place for place, argument in enumerate(op.signature.arguments) if argument.mutated]
    if not places:
        return function

    def changed(values: Sequence[Any]) -> Any:
        function(values)
        return values[places[0]] if len(places) == 1 else tuple(values[place] for place in places)

    return changed


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
        raise UnavailableError("liger", f"liger-kernel has no {base}")
    module, name = _LIGER[base]
    function = getattr(import_by_name(module), name)
    return lambda values: function.apply(*values)
