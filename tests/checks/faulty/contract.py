"""Ops that break what a caller counts on, one fault each: memory, shapes, transforms, threads.

`FAULTS` tells for each the item that must find it, the level at which it does, and words of its message. `OPS` holds
the ops, those among them that were registered with torch.library and are only adopted.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import opsmith
from opsmith import Cost, Sample
from opsmith.checks import adopt

FAULTS: dict[str, tuple[str, str, str]] = {}
OPS: dict[str, Any] = {}
_library = torch.library.Library("faulty", "FRAGMENT")


# --- What they compute --------------------------------------------------------------------------------------------


def halved(x: Tensor, scale: float = 0.5) -> Tensor:
    return x * scale


def total(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def sine(x: Tensor) -> Tensor:
    return torch.sin(x)


# --- How they are declared ----------------------------------------------------------------------------------------


def of_one(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    # 140 bytes in float32: malloc leaves 12 behind them, which a fault may write to without harm to the process.
    for shape in ((5, 7), (3, 8), (2, 3, 4)):
        yield Sample((torch.randn(shape, device=device, dtype=dtype),), name=f"shape {shape}")


def of_two(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    for (sample,) in zip(of_one(device, dtype), strict=False):
        yield Sample((*sample.args, torch.randn_like(sample.args[0])), name=sample.name)


Part = Callable[[Any], None]


def fault(
    item: str, words: str, reference: Callable[..., Tensor] = halved, level: str = "quick", **options: Any
) -> Any:
    """Declares the reference under the decorated function's name, and lets the function spoil it."""

    def declare(spoil: Part) -> Part:
        name = spoil.__name__
        op = opsmith.op(f"faulty::{name}", **options)(reference)
        op.register_samples(of_two if reference is total else of_one)
        spoil(op)
        FAULTS[name], OPS[name] = (item, level, words), op
        return spoil

    return declare


def adopted(item: str, words: str, reference: Callable[..., Tensor], schema: str = "(Tensor x) -> Tensor") -> Any:
    """The decorated function is the operator, on every key, gradients and all."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        _library.define(f"{name}{schema}")
        _library.impl(name, function, "CompositeImplicitAutograd")
        FAULTS[name] = item, "quick", words
        OPS[name] = adopt(getattr(torch.ops.faulty, name), reference)
        return function

    return declare


def sound(name: str) -> Any:
    """What the faulty ones would be without their faults."""
    op = opsmith.op(f"faulty::{name}")(halved)
    op.register_samples(of_one)
    give_kernel(op, lambda x, scale: x * scale)
    give_backward(op, _backward)
    return op


def _backward(grads: Any, x: Tensor, scale: float, *, needs: Any) -> Tensor:
    return grads[0] * scale


def give_kernel(op: Any, kernel: Callable[..., Any]) -> None:
    for device in ("cpu", "cuda"):
        op.register_kernel(device, kernel)


def give_backward(op: Any, backward: Callable[..., Any]) -> None:
    for device in ("cpu", "cuda"):
        op.register_backward(device, backward)


OPS["sound_half"] = sound("sound_half")


class Recorded(torch.autograd.Function):
    """A gradient of which the subclasses tell what is wrong with it."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


# --- Memory -------------------------------------------------------------------------------------------------------


@fault("outputs_written", "output 0 holds what its memory held before")
def tail_not_written(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        result = torch.empty_like(x)
        result.view(-1)[:-1] = x.reshape(-1)[:-1] * scale
        return result

    give_kernel(op, kernel)


@fault("outputs_written", "output 1 holds what its memory held before")
def gradient_not_written(op: Any) -> None:
    def backward(grads: Any, x: Tensor, scale: float, *, needs: Any) -> Tensor:
        gradient = torch.empty_like(x)
        gradient.view(-1)[1:] = grads[0].reshape(-1)[1:] * scale
        return gradient

    give_backward(op, backward)


@fault("outputs_written", "are written")
def behind_its_result(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        result = x * scale
        if result.nbytes == 140:
            ctypes.memset(result.data_ptr() + result.nbytes, 0x11, 4)
        return result

    give_kernel(op, kernel)


def _has_more(x: Tensor) -> bool:
    """Whether there is memory behind a tensor that belongs to its own allocation."""
    used = (x.storage_offset() + x.numel()) * x.element_size()
    return x.is_contiguous() and used + x.element_size() <= x.untyped_storage().nbytes()


@fault("outputs_written", "it writes into the memory beside x")
def beside_its_input(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        if _has_more(x):
            ctypes.memset(x.data_ptr() + x.nbytes, 0x11, x.element_size())
        return x * scale

    give_kernel(op, kernel)


@fault("outputs_written", "change with what lies beside its inputs", sine)
def reads_beyond(op: Any) -> None:
    def kernel(x: Tensor) -> Tensor:
        result = torch.sin(x)
        if _has_more(x):
            result.view(-1)[-1] += x.as_strided((x.numel() + 1,), (1,))[-1].clamp(-1, 1)
        return result

    give_kernel(op, kernel)


@fault("inputs_unchanged", "x was changed by the call")
def input_for_scratch(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        return x.data.mul_(scale).clone()

    give_kernel(op, kernel)


@fault("inputs_unchanged", "backward changes the gradient it is given")
def given_gradient_for_scratch(op: Any) -> None:
    def backward(grads: Any, scale: float, *, needs: Any) -> Tensor:
        return grads[0].data.mul_(scale).clone()

    give_backward(op, backward)


@fault("inputs_unchanged", "backward changes a result")
def result_for_scratch(op: Any) -> None:
    def backward(grads: Any, scale: float, output: Tensor, *, needs: Any) -> Tensor:
        return output.data.fill_(scale) * grads[0]

    give_backward(op, backward)


class _ForgetsFactor(Recorded):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = torch.cos(inputs[0]).detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        factor, ctx.factor = ctx.factor, torch.zeros_like(ctx.factor)
        return grad * factor


@adopted("inputs_unchanged", "a second backward through the same call gives different gradients", sine)
def forgets_what_it_kept(x: Tensor) -> Tensor:
    return _ForgetsFactor.apply(x)  # type: ignore[no-any-return]


@fault("aliasing", "results[0] shares memory with x")
def nothing_to_do(op: Any) -> None:
    give_kernel(op, lambda x, scale: x if scale == 1.0 else x * scale)


class _OneGradientForTwo(Recorded):
    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        own = grad.clone()
        return own.view_as(own), own.view_as(own)


@adopted("aliasing", "y.grad shares memory with x.grad", total, "(Tensor x, Tensor y) -> Tensor")
def one_gradient_for_two(x: Tensor, y: Tensor) -> Tensor:
    return _OneGradientForTwo.apply(x, y)  # type: ignore[no-any-return]


class _HandsGradientOn(Recorded):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.view_as(grad)


def unchanged(x: Tensor) -> Tensor:
    return x * 1


@adopted("aliasing", "a second backward adds to the gradient that it is given", unchanged)
def hands_its_gradient_on(x: Tensor) -> Tensor:
    return _HandsGradientOn.apply(x)  # type: ignore[no-any-return]


def cost(x: Tensor, scale: float = 0.5) -> Cost:
    return Cost(bytes=2 * x.nbytes)


@fault("peak_memory", "bytes of its declared cost")
def many_intermediates(op: Any) -> None:
    give_kernel(op, lambda x, scale: torch.stack([x, x, x, x]).mul(scale)[0].clone())
    op.register_cost(cost)


@fault("peak_memory", "forward and backward holds")
def keeps_a_lot(op: Any) -> None:
    def backward(grads: Any, x: Tensor, scale: float, *, needs: Any) -> Tensor:
        return torch.stack([grads[0]] * 6).mul(scale)[0].clone()

    give_backward(op, backward)


_kept: list[Tensor] = []


@fault("peak_memory", "bytes behind after its results are freed")
def leaks(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        _kept.append(x * scale)
        return _kept[-1].clone()

    give_kernel(op, kernel)


@fault("peak_memory", "it keeps its inputs: 1 tensors of a call that is long over")
def keeps_what_it_is_given(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        _kept.append(x)
        return x * scale

    give_kernel(op, kernel)


_results: dict[Any, Tensor] = {}


def _always_there(like: Tensor) -> Tensor:
    return _results.setdefault((like.shape, like.dtype, like.device), torch.empty_like(like))


@fault("aliasing", "results[0] of the next call shares memory with results[0]")
def one_result_for_all_calls(op: Any) -> None:
    give_kernel(op, lambda x, scale: torch.mul(x, scale, out=_always_there(x)))


@fault("aliasing", "gradients[0] of the next call shares memory with gradients[0]")
def one_gradient_for_all_calls(op: Any) -> None:
    def backward(grads: Any, x: Tensor, scale: float, *, needs: Any) -> Tensor:
        return torch.mul(grads[0], scale, out=_always_there(grads[0]))

    give_backward(op, backward)


# --- Shapes and tracing -------------------------------------------------------------------------------------------


@fault("fake", "on fake tensors, but float64")
def fake_of_another_dtype(op: Any) -> None:
    op.register_fake(lambda x, scale=0.5: torch.empty(x.shape, dtype=torch.float32, device=x.device))


@fault("fake", "permuted: result is")
def fake_of_other_strides(op: Any) -> None:
    op.register_fake(lambda x, scale=0.5: torch.empty_like(x))


def _counted(x: Tensor, scale: float = 0.5) -> Tensor:
    return x.new_empty([int(size) for size in x.shape])


@fault("fake", "x.shape[0] == 3")
def sizes_become_numbers(op: Any) -> None:
    op.register_fake(_counted)


@fault("compile", "3 sizes take 3 graphs")
def a_graph_for_each_size(op: Any) -> None:
    op.register_fake(_counted)


@fault("export", "is a constant of the program")
def a_program_for_one_size(op: Any) -> None:
    op.register_fake(_counted)


@fault("compile", "it raises")
def no_graph_at_all(op: Any) -> None:
    op.register_fake(lambda x, scale=0.5: x.new_empty(x.shape) if float(x.sum()) < 1e30 else x)


@adopted("compile", "result: ", halved, "(Tensor x, float scale=0.5) -> Tensor")
def another_when_compiled(x: Tensor, scale: float = 0.5) -> Tensor:
    return x * scale + 1 if torch.compiler.is_compiling() else x * scale


def half(x: Tensor) -> Tensor:
    return x * 0.5


_library.define("changes_its_input(Tensor x) -> Tensor")
_library.impl("changes_its_input", lambda x: x.mul_(0.5).clone(), "CompositeExplicitAutograd")
FAULTS["changes_its_input"] = "opcheck", "quick", "not defined as mutable but was mutated"
OPS["changes_its_input"] = adopt(torch.ops.faulty.changes_its_input, half)


# --- Transforms ---------------------------------------------------------------------------------------------------


@fault("vmap", "in_dims=(-1,)")
def batch_is_first(op: Any) -> None:
    op.register_vmap(lambda info, in_dims, x, scale=0.5: (op(x, scale), 0))


def _as_lowered(x: Tensor) -> Tensor:
    return torch.sin(x.to(torch.bfloat16)).to(x.dtype) if torch.is_autocast_enabled(x.device.type) else torch.sin(x)


@adopted("autocast", "in a region to bfloat16: policy 'keep'", sine)
def rounded_and_cast_back(x: Tensor) -> Tensor:
    return _as_lowered(x)


@fault("autocast", "declared with autocast='float32', and registered to be cast to torch.bfloat16", autocast="float32")
def two_policies(op: Any) -> None:
    for device in ("cpu", "cuda"):
        op.register_autocast(device, torch.bfloat16)


@fault("functional_transforms", "a call of size 3, float64, hessian: result", sine)
def second_derivative_detached(op: Any) -> None:
    op.register_autograd(
        lambda ctx, grad: grad * torch.cos(ctx.saved_tensors[0].detach()),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )


@adopted("pickling", "it raises", sine)
def carries_a_function(x: Tensor) -> Tensor:
    result = torch.sin(x)
    result.inverse = lambda: torch.asin(x)  # type: ignore[attr-defined]
    return result


# --- Threads and processes ----------------------------------------------------------------------------------------

_scratch: dict[tuple[int, ...], Tensor] = {}


@fault("threads", "got different results from the same call made alone")
def one_buffer_for_all(op: Any) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        buffer = _scratch.setdefault((*x.shape, x.element_size()), torch.empty_like(x))
        buffer.copy_(x * scale)
        if threading.active_count() > 1:
            time.sleep(0.001)
        return buffer.clone()

    give_kernel(op, kernel)


_ready = [0]


@fault("threads", "the first calls of a new process, at once", level="full")
def first_calls_race(op: Any) -> None:
    """Set up by the first call, which says so before it is done. In the process of a test it has been set up."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        if not _ready[0]:
            _ready[0] = 1
            time.sleep(0.2)
            _ready[0] = 2
        assert _ready[0] == 2, "not set up"
        return x * scale

    give_kernel(op, kernel)


_pool = concurrent.futures.ThreadPoolExecutor(1)


@fault("fork", "forward in a forked process does not come back", level="full")
def workers_stay_behind(op: Any) -> None:
    give_kernel(op, lambda x, scale: _pool.submit(torch.mul, x, scale).result())
