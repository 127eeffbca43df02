"""inline=True: torch.compile sees the Triton kernels of an operator, in place of the operator."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch._library import triton as torch_triton
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from ..kernels import PythonKernel
from ..kernels.languages import imported
from ..kernels.substitution import Search
from ..kernels.triton import bare, is_kernel
from ..reference.tensors import contiguous_clone
from ..runtime import execution
from ..runtime.operator import Operator

_PLAIN_TENSORS = (torch.Tensor, FunctionalTensor)

_shown: weakref.WeakSet[Operator] = weakref.WeakSet()


def show_to_compile(operator: Operator) -> None:
    """Lets torch.compile see the kernels of an operator whose "cuda" kernel is `inline`.

    The rule applies where torch makes an operator functional, as for those of torch.library.triton_op. Gradients are
    recorded above it, and the backward operator has its own rule."""
    if operator in _shown:
        return
    _shown.add(operator)

    def rule(mode: Any, op: Any, types: Any, args: Any, kwargs: Any) -> Any:
        values = operator.signature.bind(args, kwargs)
        function = _traceable_function(operator, values)
        if function is None or _exporting():
            return mode.__torch_dispatch__(op, types, args, kwargs)
        if any(not issubclass(each, FakeTensor) and each not in _PLAIN_TENSORS for each in types):
            return NotImplemented
        with mode:
            returned = _run_traced(operator, function, values)
        return mode.__torch_dispatch__(op, types, args, kwargs) if returned is NotImplemented else returned

    torch.library.register_torch_dispatch(operator.name, FunctionalTensorMode, rule, lib=operator.library)
    # From these torch's cache of compiled graphs knows that a kernel has changed: the graph only names the operator.
    torch_triton.triton_ops_to_kernels[operator.name] = _Sources(operator)  # type: ignore[assignment]


def _traceable_function(operator: Operator, values: Any) -> Callable[..., Any] | None:
    kernel = operator.kernels.get("cuda")
    device = execution.check_one_device(operator.name, operator.signature, values)
    if kernel is None or device is None or device.type != "cuda":
        return None
    return kernel.traced if isinstance(kernel, PythonKernel) else None


def _exporting() -> bool:
    """torch.export keeps the operator: a program that is saved cannot hold a Triton kernel."""
    from torch.export._trace import custom_triton_ops_decomposition_disabled

    return bool(custom_triton_ops_decomposition_disabled())


def _run_traced(operator: Operator, function: Callable[..., Any], values: Any) -> Any:
    signature = operator.signature
    passed = values
    if operator.kernels["cuda"].layout == "contiguous":
        tensors = signature.flatten(values)
        passed = signature.unflatten(
            values, [t if t is None or t.is_contiguous() else contiguous_clone(t) for t in tensors]
        )
    with torch._C._DisableAutocast():
        returned = function(*passed)
    if returned is NotImplemented:
        return returned
    execution.write_back(signature.arguments, values, passed)
    return operator.reference.laid_out(returned, values)


class _Sources:
    """All functions and kernels whose source decides what an operator's traced kernels do, those of its gradient
    included. They are found on iteration, since a kernel may not be imported yet. Each entry has what torch reads from
    a kernel: `src`, `fn`, `__name__`."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def __iter__(self) -> Iterator[Any]:
        operator: Operator | None = self._operator
        while operator is not None:
            kernel = operator.kernels.get("cuda")
            if isinstance(kernel, PythonKernel) and kernel.traced is not None:
                search = Search(is_kernel)
                search.visit(imported(kernel.author))
                yield from map(_Source, search.functions.values())
                yield from (_compiled(each) for each in search.found.values())
            operator = operator.backward


class _Source:
    def __init__(self, function: FunctionType) -> None:
        self.fn = function
        self.__name__ = function.__name__
        try:
            self.src = inspect.getsource(function)
        except (OSError, TypeError):  # no source file: use the bytecode
            self.src = function.__code__.co_code.hex()


def _compiled(kernel: Any) -> Any:
    """The JITFunction under an autotuner."""
    kernel = bare(kernel)
    while not hasattr(kernel, "src"):
        kernel = kernel.fn
    return kernel
