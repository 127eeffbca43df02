"""Ops whose first use, or even declaration, happens inside a transform, a mode or another setting of torch.

A program: `python first_uses.py KIND,... PLACE...` forks a process for each case, in which opsmith is not imported yet,
and prints {case: "" or the traceback} as JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[[torch.Tensor], torch.Tensor]
Get = Callable[[], Function]


def simple(x: torch.Tensor, s: float = 2.5) -> torch.Tensor:
    return torch.tanh(x) * s + x * x


def rich(x: torch.Tensor, s: float = 2.5) -> torch.Tensor:
    """Functions of every sort, with constants in them."""
    smooth = F.gelu(x) + F.softplus(x, 2.0) + F.elu(x) + F.mish(x)
    bent = torch.where(x > 0.25, x.clamp(max=1.5) ** 3, torch.exp2(x)) + F.leaky_relu(x, 0.1)
    return smooth * s - bent / (1.0 + x.abs()) + torch.remainder(x, 0.75)


formula = simple
"""Of the op under test."""


def expected(x: torch.Tensor) -> torch.Tensor:
    return formula(x)


# --- The kinds of ops -------------------------------------------------------------------------------------------------


def pointwise() -> Function:
    import opsmith

    @opsmith.pointwise("first_uses::pointwise")
    def op(x: torch.Tensor, s: float = 2.5) -> torch.Tensor:
        return rich(x, s)

    return op


def reference() -> Function:
    import opsmith

    @opsmith.op("first_uses::reference")
    def op(x: torch.Tensor, s: float = 2.5) -> torch.Tensor:
        return rich(x, s)

    return op


def kernels() -> Function:
    import opsmith

    @opsmith.op("first_uses::kernels")
    def op(x: torch.Tensor, s: float = 2.5) -> torch.Tensor:
        return simple(x, s)

    @op.register_kernel("cpu")
    def _(x, s):
        return torch.tanh(x).mul_(s).addcmul_(x, x)

    @op.register_backward("cpu")
    def _(grads, x, s, *, needs):
        return (grads[0] * (s * (1 - torch.tanh(x).square()) + 2 * x),)

    return op


KINDS = {"pointwise": (pointwise, rich), "reference": (reference, rich), "kernels": (kernels, simple)}

# --- Where an op is first used ----------------------------------------------------------------------------------------

X = torch.linspace(-1.5, 2.0, 12).reshape(3, 4)
EXACT = torch.linspace(-1.5, 2.0, 12, dtype=torch.float64).reshape(3, 4)


def close(found: Any, right: Any) -> None:
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5, check_dtype=False)


class Calls(torch.nn.Module):
    def __init__(self, get: Get) -> None:
        super().__init__()
        self.get = get

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.get()(x)


def plainly(get: Get) -> None:
    close(get()(X), expected(X))


def export_strict(get: Get) -> None:
    close(torch.export.export(Calls(get), (X,), strict=True).module()(X), expected(X))


def export_not_strict(get: Get) -> None:
    close(torch.export.export(Calls(get), (X,), strict=False).module()(X), expected(X))


def compile(get: Get) -> None:
    x = X.clone().requires_grad_()
    result = torch.compile(lambda x: get()(x), backend="aot_eager")(x)
    close(result, expected(X))
    result.sum().backward()
    close(x.grad, gradient(X))


def jit_trace(get: Get) -> None:
    close(torch.jit.trace(lambda x: get()(x), (X,))(2 * X), expected(2 * X))


def make_fx(get: Get) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    close(make_fx(lambda x: get()(x))(X)(2 * X), expected(2 * X))


def make_fx_symbolic(get: Get) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    close(make_fx(lambda x: get()(x), tracing_mode="symbolic")(X)(2 * X), expected(2 * X))


def make_fx_pre_dispatch(get: Get) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    close(make_fx(lambda x: get()(x), pre_dispatch=True)(X)(2 * X), expected(2 * X))


def gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(expected(x).sum(), x)[0]


def func_grad(get: Get) -> None:
    close(torch.func.grad(lambda x: get()(x).sum())(X), gradient(X))


def func_vjp(get: Get) -> None:
    close(torch.func.vjp(lambda x: get()(x), X)[1](torch.ones_like(X))[0], gradient(X))


def jvp(get: Get) -> None:
    close(torch.func.jvp(lambda x: get()(x), (X,), (torch.ones_like(X),))[1], gradient(X))


def hessian(get: Get) -> None:
    close(torch.func.hessian(lambda x: get()(x).sum())(X[0]), torch.func.hessian(lambda x: expected(x).sum())(X[0]))


def vmap(get: Get) -> None:
    close(torch.func.vmap(lambda x: get()(x))(X), expected(X))


def vmap_of_grad(get: Get) -> None:
    close(torch.func.vmap(torch.func.grad(lambda x: get()(x).sum()))(X), gradient(X))


def checkpoint(get: Get, reentrant: bool = False) -> None:
    from torch.utils.checkpoint import checkpoint

    x = X.clone().requires_grad_()
    checkpoint(lambda x: get()(x), x, use_reentrant=reentrant).sum().backward()
    close(x.grad, gradient(X))


def checkpoint_reentrant(get: Get) -> None:
    checkpoint(get, reentrant=True)


def inside_backward(get: Get) -> None:
    x = X.clone().requires_grad_()
    y = x * 1
    y.register_hook(lambda grad: get()(grad))
    y.backward(X)
    close(x.grad, expected(X))


def no_grad(get: Get) -> None:
    with torch.no_grad():
        close(get()(X), expected(X))


def inference_mode(get: Get) -> None:
    with torch.inference_mode():
        close(get()(X + 0), expected(X))


def autocast(get: Get) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        close(get()(X), expected(X))


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def dispatch_mode(get: Get) -> None:
    with Passing():
        close(get()(X), expected(X))


class PassingFunctions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def function_mode(get: Get) -> None:
    with PassingFunctions():
        close(get()(X), expected(X))


def fake_tensor_mode(get: Get) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        result = get()(mode.from_tensor(X))
        assert (result.shape, result.dtype) == (X.shape, X.dtype), result


def meta_device(get: Get) -> None:
    with torch.device("meta"):
        op = get()
        result = op(torch.empty(3, 4))
        assert (result.shape, result.device.type) == (X.shape, "meta"), result
        real = op(X)
    close(real, expected(X))


def default_device(get: Get) -> None:
    torch.set_default_device("meta")
    try:
        real = get()(X)
    finally:
        torch.set_default_device(None)
    close(real, expected(X))


def default_dtype(get: Get) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        op = get()
        found, wide = op(X), op(EXACT)
    finally:
        torch.set_default_dtype(torch.float32)
    close(found, expected(X))
    assert found.dtype is torch.float32
    torch.testing.assert_close(wide, expected(EXACT))


def deterministic(get: Get) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        plainly(get)
    finally:
        torch.use_deterministic_algorithms(False)


def anomaly(get: Get) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        x = X.clone().requires_grad_()
        get()(x).sum().backward()
    close(x.grad, gradient(X))


def profiler(get: Get) -> None:
    with torch.autograd.profiler.profile():
        plainly(get)


def thread(get: Get) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            plainly(get)
        except BaseException as error:
            raised.append(error)

    started = threading.Thread(target=run)
    started.start()
    started.join()
    if raised:
        raise raised[0]


class Data(torch.utils.data.Dataset):
    def __init__(self, get: Get) -> None:
        self.get = get

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.get()(X)


def forked_worker(get: Get) -> None:
    loader = torch.utils.data.DataLoader(Data(get), batch_size=None, num_workers=1, multiprocessing_context="fork")
    for found in loader:
        close(found, expected(X))


PLACES: dict[str, Callable[[Get], None]] = {
    each.__name__: each
    for each in (
        plainly, export_strict, export_not_strict, compile, jit_trace, make_fx, make_fx_symbolic, make_fx_pre_dispatch,
        func_grad, func_vjp, jvp, hessian, vmap, vmap_of_grad, checkpoint, checkpoint_reentrant, inside_backward,
        no_grad, inference_mode, autocast, dispatch_mode, function_mode, fake_tensor_mode, meta_device, default_device,
        default_dtype, deterministic, anomaly, profiler, thread, forked_worker,
    )
}  # fmt: skip
IMPORTED = ("compile", "export_strict")
"""Places where opsmith is imported before: dynamo cannot trace an import, whatever is imported."""
IMPORTED_BY_TORCH = (
    "torch._dynamo", "torch._dynamo.backends.debugging", "torch._export.non_strict_utils",
    "torch._functorch.aot_autograd", "torch._inductor.compile_fx", "torch.fx.experimental.symbolic_shapes",
)  # fmt: skip
"""What torch itself imports when it compiles and exports; that takes a second."""


def run(place: str, kind: str, inside: bool) -> None:
    global formula
    declare, formula = KINDS[kind]
    if inside:
        if place in IMPORTED:
            import opsmith  # noqa: F401
        declared: list[Function] = []

        def get() -> Function:
            if not declared:
                declared.append(declare())
            return declared[0]
    else:
        op = declare()

        def get() -> Function:
            return op

    PLACES[place](get)
    # What was set up inside works outside too.
    x = X.clone().requires_grad_()
    op = get()
    op(x).sum().backward()
    close(x.grad, gradient(X))
    close(op(EXACT), expected(EXACT))
    assert torch.vmap(op)(X).shape == X.shape


def in_fork(place: str, kind: str, inside: bool) -> str:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            torch.set_num_threads(1)
            run(place, kind, inside)
        except BaseException:
            said = traceback.format_exc()[-3000:]
        with os.fdopen(writing, "w") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said if status == 0 else f"the process ended with {status}"


def main(kinds: list[str], places: list[str]) -> None:
    for name in IMPORTED_BY_TORCH:  # once, and not in each of the processes
        importlib.import_module(name)
    gc.freeze()  # the processes share the memory of these modules until they collect the garbage in it
    found = {}
    for place in places:
        for kind in kinds:
            for inside in (False, True):
                found[f"{place}, {kind}, declared {'inside' if inside else 'before'}"] = in_fork(place, kind, inside)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2:])
