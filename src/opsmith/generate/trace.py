"""The author's function as a graph of calls, by torch.fx: numbers stay symbolic, branching on values is refused.

Every node records the author's line that it comes from.
"""

from __future__ import annotations

import math
import operator
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..errors import NotPointwiseError, NotRowwiseError, SourceLine
from ..reference.signature import Argument, Signature
from .functions import find, of_rows
from .scalars import is_scalar_function

SYMBOLIC = ("Tensor", "Tensor?", "float", "SymInt")
"""The types of arguments that a kernel takes at run time. Any other (a bool, a string, a dtype) is compiled in: the
function may branch on it."""


def is_static(argument: Argument) -> bool:
    return argument.type not in SYMBOLIC


def compiled_in(signature: Signature, rows: bool) -> tuple[bool, ...]:
    """Which arguments of an operator decide its program: the static ones; in a row program, of a tensor the number of
    dimensions."""
    return tuple(rows if argument.is_tensor else is_static(argument) for argument in signature.arguments)


class _GradientsOff(Exception):
    """The function disables gradients for a part of itself, which a graph of calls does not show."""


class _Proxy(fx.Proxy):
    """A proxy that records `y += 1` as an in-place change. torch.fx's own records y = y + 1, which leaves other
    references to y, and a mutated input, unchanged."""

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None) -> fx.Proxy:
        # As torch.fx's own, which first lists every function of torch to find methods: 10 ms.
        name = getattr(orig_method, "__name__", "")
        is_method = getattr(torch.Tensor, name, None) is orig_method
        leaves = pytree.tree_leaves((args, kwargs or {}))
        tracer = next(leaf.tracer for leaf in leaves if isinstance(leaf, fx.Proxy))
        if is_method:
            return tracer.create_proxy("call_method", name, args, kwargs or {})
        return tracer.create_proxy("call_function", orig_method, args, kwargs or {})


def _in_place(name: str) -> Callable[[fx.Proxy, Any], Any]:
    function = getattr(operator, name)

    def method(self: fx.Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return method


for _name in (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"
):  # fmt: skip
    setattr(_Proxy, f"__{_name}__", _in_place(_name))


class _Tracer(fx.Tracer):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(autowrap_modules=(math,))
        self._code = function.__code__
        module = sys.modules.get(function.__module__)
        if module is not None:  # `from math import sqrt` in the author's file
            self._autowrap_search.append(module)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if not torch.is_grad_enabled():
            raise _GradientsOff
        node = super().create_node(*args, **kwargs)
        node.meta["line"] = innermost_line(self._code.co_filename, traceback.walk_stack(sys._getframe(1)))
        return node


def innermost_line(file: str, frames: Iterable[tuple[FrameType, int]]) -> SourceLine | None:
    """The first of the frames' lines that is in a file."""
    return next((SourceLine.at(file, number) for frame, number in frames if frame.f_code.co_filename == file), None)


class Trace:
    """A function traced for one choice of its static arguments. `positions`: its symbolic arguments, which are the
    graph's placeholders."""

    def __init__(
        self, name: str, function: Callable[..., Any], signature: Signature, statics: Mapping[int, Any], rows: bool
    ) -> None:
        self.name = name
        self.function = function
        self.signature = signature
        self.rows = rows
        self.positions = [position for position in range(len(signature.arguments)) if position not in statics]
        self.graph = self._traced(statics)
        self._check()

    def _traced(self, statics: Mapping[int, Any]) -> fx.Graph:
        arguments = self.signature.arguments
        names = [f"_{position}_{argument.name}" for position, argument in enumerate(arguments)]
        symbolic = [names[position] for position in self.positions]
        passed = [
            f"{argument.name}={name}" if argument.keyword_only else name
            for argument, name in zip(arguments, names, strict=True)
        ]
        scope: dict[str, Any] = {"function": self.function}
        scope.update({names[position]: value for position, value in statics.items()})
        exec(f"def traced({', '.join(symbolic)}): return function({', '.join(passed)})", scope)
        try:
            with torch._C._DisableAutocast(), torch.enable_grad():
                graph = _Tracer(self.function).trace(scope["traced"])
        except Exception as error:
            frames = reversed(list(traceback.walk_tb(error.__traceback__)))
            raise self.refusal(_reason(error), innermost_line(self.function.__code__.co_filename, frames)) from error
        return graph

    def refusal(self, what: str, line: SourceLine | None) -> NotPointwiseError | NotRowwiseError:
        return (NotRowwiseError if self.rows else NotPointwiseError)(self.name, self.function, what, line)

    def _check(self) -> None:
        """Refuses a call that is not in the table."""
        for node in self.graph.nodes:
            line = node.meta.get("line")
            if node.op == "get_attr":
                raise self.refusal("it uses a tensor that is not one of its arguments; make it one", line)
            if node.op in ("call_method", "call_function") and not self._is_known(node.target):
                if node.target is not getattr:
                    what = "not a function of rows" if self.rows else "not an elementwise function"
                    raise self.refusal(f"it calls {_called(node.target)}, which is {what}", line)
                if node.args[1] not in (_OF_ROWS if self.rows else ("dtype",)):
                    what = f"it asks for .{node.args[1]} of a tensor, which differs from call to call"
                    raise self.refusal(what, line)

    def _is_known(self, target: Any) -> bool:
        if of_rows(target):
            return self.rows
        return find(target) is not None or is_scalar_function(target)


_OF_ROWS = ("dtype", "shape", "device", "values", "indices")
"""The attributes that a row program may read of a tensor, or of the result of max(dim)."""


def _called(target: Any) -> str:
    if isinstance(target, str):
        return f"Tensor.{target}"
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", str(target))
    if "_VariableFunctions" in str(getattr(target, "__self__", "")) or module == "torch._C._VariableFunctions":
        module = "torch"
    if module in ("_operator", "operator"):
        return f"`{_SYMBOLS.get(name, name)}`"
    return f"{module.replace('torch._C._nn', 'torch.nn.functional')}.{name}".lstrip(".")


_SYMBOLS = {"matmul": "@", "imatmul": "@=", "getitem": "[...]", "setitem": "[...] ="}


def _reason(error: Exception) -> str:
    message = str(error)
    if isinstance(error, _GradientsOff):
        return "it switches gradients off for a part (use .detach() on what has none)"
    if isinstance(error, fx.proxy.TraceError):
        if "control flow" in message:
            return "it branches on a value (use torch.where, or an argument annotated bool or str)"
        return f"it cannot be traced ({message.splitlines()[0]})"
    return f"it cannot be traced ({type(error).__name__}: {message.splitlines()[0] if message else ''})"
