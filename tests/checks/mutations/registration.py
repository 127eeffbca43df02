"""Faults of what is registered: batching rules, casts, and operators written by hand with torch.library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import opsmith
from opsmith.checks import adopt

from . import sound
from .library import mutation

_libraries: list[torch.library.Library] = []


@mutation("registration", "vmap", "functional_transforms")
def batch_taken_to_be_first(name: str) -> opsmith.Op:
    """The batching rule looks at no in_dims."""
    op = sound.softsign(name)
    op.register_vmap(lambda info, in_dims, x, scale=1.0: (op(x, scale), 0))
    return op


@mutation("registration", "vmap", "functional_transforms")
def only_the_first_is_batched(name: str) -> opsmith.Op:
    """The rule moves x's batch to the front and takes the bias to have none."""
    op = sound.shifted(name)

    def rule(info: Any, in_dims: Any, x: Tensor, bias: Tensor, scale: float = 1.0) -> tuple[Tensor, int]:
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        return op(x, bias, scale), 0

    op.register_vmap(rule)
    return op


@mutation("registration", "autocast")
def cast_to_another_dtype(name: str) -> opsmith.Op:
    """Declared to run in float32 inside of autocast regions, and registered to run in float16."""
    op = opsmith.op(name, autocast="float32")(sound.softsign_reference)
    sound.samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype), 1.5), (6, 37))
    op.register_autocast("cpu", torch.float16)
    return op


def _library(name: str, schema: str, function: Any, key: str = "CompositeExplicitAutograd") -> torch.library.Library:
    namespace, _, base = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{base}{schema}")
    library.impl(base, function, key)
    _libraries.append(library)
    return library


def _operator(name: str) -> Any:
    namespace, _, base = name.partition("::")
    return getattr(getattr(torch.ops, namespace), base)


def doubled(x: Tensor) -> Tensor:
    """What the operators below are to compute."""
    return x * 2


def _copied(x: Tensor) -> Tensor:
    return x.clone()


def _sine(x: Tensor) -> Tensor:
    return x.sin()


def _fake(name: str) -> None:
    torch.library.register_fake(name, lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))


def _gradient(name: str) -> None:
    torch.library.register_autograd(name, lambda ctx, grad: grad * 2)


@mutation("registration", "gradients")
def no_gradient_at_all(name: str) -> Any:
    """An operator with a kernel and no autograd: as C++ that reads data_ptr is, it is invisible to autograd."""
    _library(name, "(Tensor x) -> Tensor", lambda x: (x.detach() * 2).contiguous(), "CPU")
    _fake(name)
    return adopt(_operator(name), doubled)


@mutation("registration", "fake", "opcheck", "compile", "export")
def no_fake_at_all(name: str) -> Any:
    """Compiling is the first to ask for a shape rule."""
    _library(name, "(Tensor x) -> Tensor", lambda x: (x * 2).contiguous(), "CPU")
    _gradient(name)
    return adopt(_operator(name), doubled)


@mutation("registration", "inputs_unchanged", "opcheck", "values", "determinism")
def changes_what_its_schema_does_not_name(name: str) -> Any:
    """`Tensor x` is doubled in place; the schema should say `Tensor(a!) x`."""
    _library(name, "(Tensor x) -> Tensor", lambda x: x.mul_(2).clone(), "CPU")
    _fake(name)
    _gradient(name)
    return adopt(_operator(name), doubled)


@mutation("registration", "aliasing", "opcheck")
def returns_a_view_of_its_input(name: str) -> Any:
    """A view where the schema promises a fresh tensor."""
    _library(name, "(Tensor x) -> Tensor", lambda x: x.view_as(x), "CPU")
    _fake(name)
    torch.library.register_autograd(name, lambda ctx, grad: grad)
    return adopt(_operator(name), _copied)


@mutation("registration", "forward_mode", "functional_transforms")
def no_forward_mode(name: str) -> Any:
    """torch.library.register_autograd knows reverse mode alone."""
    _library(name, "(Tensor x) -> Tensor", lambda x: (x * 2).contiguous(), "CPU")
    _fake(name)
    _gradient(name)
    return adopt(_operator(name), doubled)


@mutation("registration", "vmap", "functional_transforms")
def no_batching_rule(name: str) -> Any:
    """An operator that vmap cannot take apart."""
    _library(name, "(Tensor x) -> Tensor", lambda x: (x * 2).contiguous(), "CPU")
    _fake(name)
    _gradient(name)
    return adopt(_operator(name), doubled)


@mutation("registration", "second_gradients", "functional_transforms", "gradients")
def gradient_by_a_function_that_is_not_differentiable(name: str) -> Any:
    """The backward leaves autograd by NumPy, as tutorials do: first gradients right, second ones missing."""
    _library(name, "(Tensor x) -> Tensor", lambda x: x.sin().contiguous(), "CPU")
    _fake(name)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.from_numpy(x.detach().numpy()).cos()

    torch.library.register_autograd(name, backward, setup_context=setup_context)
    return adopt(_operator(name), _sine)


@mutation("registration", "peak_memory")
def keeps_four_copies(name: str) -> Any:
    """The gradient saves every intermediate in float64: right numbers, eight times the memory."""
    _library(name, "(Tensor x) -> Tensor", lambda x: (x * 2).contiguous(), "CPU")
    _fake(name)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        wide = inputs[0].double()
        ctx.save_for_backward(wide, wide + 1, wide + 2, wide + 3)

    torch.library.register_autograd(name, lambda ctx, grad: grad * 2 + 0 * ctx.saved_tensors[3].to(grad.dtype),
                                    setup_context=setup_context)  # fmt: skip
    return adopt(_operator(name), doubled)
