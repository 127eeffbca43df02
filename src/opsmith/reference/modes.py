"""Lets an op be declared and first used inside any mode, transform or tracer of torch, as if outside of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast

import torch
from torch._ops import _len_torch_dispatch_stack_pre_dispatch, _pop_mode_from_pre_dispatch
from torch.compiler import is_dynamo_compiling
from torch.overrides import _len_torch_function_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch


@contextmanager
def no_modes() -> Iterator[None]:
    """Inside, torch's operators run on plain CPU tensors with real values, as at the top of a script.

    Suspended are modes for functions (torch.device, set_default_device) and for operators (FakeTensorMode, make_fx,
    a user's TorchDispatchMode), torch.func's transforms, torch.jit.trace, autocast, inference_mode and no_grad. The
    default dtype stays: it is global to the process, and other threads may be using it.
    """
    with ExitStack() as restored:
        # Not torch._C.DisableTorchFunction: it would also disable the proxies that trace an author's function.
        for _ in range(_len_torch_function_stack()):
            restored.callback(_push_mode, _pop_mode())
        # torch's own _disable_current_modes does the same after importing fake tensors, and with them dynamo.
        for _ in range(_len_torch_dispatch_stack_pre_dispatch()):
            restored.callback(_python_dispatch._push_mode, _pop_mode_from_pre_dispatch())
        for _ in range(_python_dispatch._len_torch_dispatch_stack()):
            restored.callback(_python_dispatch._push_mode, _python_dispatch._pop_mode())
        if (state := torch._C._get_tracing_state()) is not None:
            torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
            restored.callback(torch._C._set_tracing_state, state)  # type: ignore[attr-defined]
        restored.enter_context(torch._C._DisableFuncTorch())
        restored.enter_context(torch._C._DisableAutocast())
        restored.enter_context(torch.inference_mode(False))
        restored.enter_context(torch.enable_grad())
        yield


def called_by_dynamo(function: Callable[..., None]) -> Callable[..., None]:
    """Marks a function that torch.compile calls while it traces the caller, instead of tracing it. Its arguments must
    be constants. What it returns would have to be one as well, so it returns nothing."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch._dynamo.assume_constant_result
    return function


Method = TypeVar("Method", bound=Callable[..., Any])


def called_while_traced(method: Method) -> Method:
    """A method that registers a function with an op, usable inside a function that torch.compile traces: dynamo calls
    it there. Without a function among its arguments it is a decorator."""

    @called_by_dynamo
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_dynamo_compiling():
            return method(self, *args, **kwargs)
        functions = [value for value in (*args, *kwargs.values()) if callable(value)]
        if not functions:
            return lambda function: wrapped(self, *args, function, **kwargs)
        call(self, *args, **kwargs)
        return functions[0]

    return cast(Method, wrapped)
