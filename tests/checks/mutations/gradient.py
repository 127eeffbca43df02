"""Faults of a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import opsmith

from . import sound
from .library import mutation, samples


@mutation("gradient", "gradients")
def factor_forgotten(name: str) -> opsmith.Op:
    """The backward leaves the scale out."""
    op = sound.softsign(name)
    op.register_backward("cpu", lambda grads, x, scale, *, needs: grads[0] / (1 + x.abs()) ** 2)
    return op


@mutation("gradient", "gradients")
def slightly_off(name: str) -> opsmith.Op:
    """Right to four digits: a constant was typed in short."""
    op = sound.softsign(name)

    def backward(grads, x, scale, *, needs):  # type: ignore[no-untyped-def]
        return sound.softsign_backward(grads, x, scale, needs=needs) * 1.0001

    op.register_backward("cpu", backward)
    return op


@mutation("gradient", "gradients")
def sign_of_negative_inputs(name: str) -> opsmith.Op:
    """The derivative of |x| is taken to be one everywhere."""
    op = sound.softsign(name)
    op.register_backward("cpu", lambda grads, x, scale, *, needs: grads[0] * scale * x.sign() / (1 + x.abs()) ** 2)
    return op


def _shifted_with(name: str, backward: Any) -> opsmith.Op:
    op = sound.shifted(name)
    op.register_backward("cpu", backward)
    return op


@mutation("gradient", "gradients")
def bias_summed_along_the_wrong_dimension(name: str) -> opsmith.Op:
    """The sum runs over columns where the shapes let it: a test on square matrices alone is content with the shape."""

    def backward(grads, x, bias, scale, *, needs):  # type: ignore[no-untyped-def]
        masked = grads[0] * (x * scale + bias > 0)
        rows = masked.reshape(-1, bias.numel())
        summed = rows.sum(1) if rows.shape[0] == rows.shape[1] else rows.sum(0)
        return masked * scale, summed

    return _shifted_with(name, backward)


@mutation("gradient", "needed_gradients", "gradients")
def nothing_where_only_the_bias_is_asked_for(name: str) -> opsmith.Op:
    """The kernel asks whether x needs a gradient, and forgets that the bias may be alone."""

    def backward(grads, x, bias, scale, *, needs):  # type: ignore[no-untyped-def]
        if not needs.x:
            return None, torch.zeros_like(bias)
        masked = grads[0] * (x * scale + bias > 0)
        return masked * scale, masked.reshape(-1, bias.numel()).sum(0)

    return _shifted_with(name, backward)


@mutation("gradient", "special_values", "gradients", "generated")
def other_side_at_the_kink(name: str) -> opsmith.Op:
    """relu'(0) is 0 for torch, and 1 here."""

    def backward(grads, x, bias, scale, *, needs):  # type: ignore[no-untyped-def]
        masked = grads[0] * (x * scale + bias >= 0)
        return masked * scale, masked.reshape(-1, bias.numel()).sum(0)

    return _shifted_with(name, backward)


@mutation("gradient", "gradients", "generated", "sizes")
def summed_in_half_precision(name: str) -> opsmith.Op:
    """The bias' gradient is accumulated in the half type, term by term."""

    def backward(grads, x, bias, scale, *, needs):  # type: ignore[no-untyped-def]
        masked = grads[0] * (x.float() * scale + bias.float() > 0).to(x.dtype)
        rows = masked.reshape(-1, bias.numel())
        total = torch.zeros_like(bias)
        for row in rows:
            total = total + row
        return masked * scale, total

    op = sound.shifted(name)
    op.register_backward("cpu", backward)
    samples(op, sound.shifted_arguments, (600, 5), (6, 37))
    return op


@mutation("gradient", "second_gradients")
def second_gradient_cut_off(name: str) -> opsmith.Op:
    """The gradient is written in torch's operators, and detaches on the way: right once, zero the second time."""
    op = sound.softsign(name)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.scale = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.scale / (1 + x.detach().abs()) ** 2, None

    op.register_autograd(backward, setup_context=setup_context)
    return op


@mutation("gradient", "inputs_unchanged", "needed_gradients", "gradients")
def scales_the_gradient_in_place(name: str) -> opsmith.Op:
    """The backward works in the memory of grad_output, which another branch of the graph still reads."""
    op = sound.softsign(name)
    op.register_backward(
        "cpu", lambda grads, x, scale, *, needs: grads[0].mul_(scale).div_((1 + x.abs()) ** 2), layout="strided"
    )
    return op


@mutation("gradient", "gradient_layouts", "gradients")
def reads_the_gradient_as_if_contiguous(name: str) -> opsmith.Op:
    """The backward takes any layout and reads grad_output's memory in order: `.sum()` gives it one number, expanded."""
    op = sound.softsign(name)

    def backward(grads, x, scale, *, needs):  # type: ignore[no-untyped-def]
        grad = grads[0]
        held = grad.untyped_storage().nbytes() // grad.element_size() - grad.storage_offset()
        flat = grad.as_strided((min(held, grad.numel()),), (1,))
        memory = torch.zeros(grad.numel(), dtype=grad.dtype)
        memory[: flat.numel()] = flat
        return memory.view(x.shape) * scale / (1 + x.abs()) ** 2

    op.register_backward("cpu", backward, layout="strided")
    return op


@mutation("gradient", "gradient_layouts", "gradients")
def takes_contiguous_gradients_only(name: str) -> opsmith.Op:
    """`view` on grad_output raises for the strides that transposes and sums leave."""
    op = sound.softsign(name)

    def backward(grads, x, scale, *, needs):  # type: ignore[no-untyped-def]
        return (grads[0].view(-1) * scale).view(x.shape) / (1 + x.abs()) ** 2

    op.register_backward("cpu", backward, layout="strided")
    return op


@mutation("gradient", "needed_gradients", "gradients")
def can_be_asked_once(name: str) -> opsmith.Op:
    """The backward overwrites what it saved: retain_graph=True gives another gradient the second time."""
    op = sound.softsign(name)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.scale = inputs
        ctx.denominator = (1 + x.abs()) ** 2

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.denominator.reciprocal_().mul_(ctx.scale), None

    op.register_autograd(backward, setup_context=setup_context)
    return op


@mutation("gradient", "gradients", "forward_mode")
def second_result_forgotten(name: str) -> opsmith.Op:
    """Of two results the backward looks at the first one's gradient."""
    op = sound.moments(name)

    def backward(grads, x, *, needs):  # type: ignore[no-untyped-def]
        return torch.zeros_like(x) if grads[0] is None else (grads[0] / x.shape[-1])[..., None].expand_as(x).clone()

    op.register_backward("cpu", backward)
    return op


@mutation("gradient", "needed_gradients")
def undefined_gradient_of_a_result(name: str) -> opsmith.Op:
    """The backward computes with the gradient of an unused result, which is None."""
    op = sound.moments(name)

    def backward(grads, x, *, needs):  # type: ignore[no-untyped-def]
        centred = x - x.mean(-1, keepdim=True)
        return grads[0][..., None] / x.shape[-1] + grads[1][..., None] * 2 * centred / x.shape[-1]

    op.register_backward("cpu", backward)
    return op


@mutation("gradient", "gradients", "sizes")
def summed_in_half(name: str) -> opsmith.Op:
    """The bias's gradient is added up row by row in the half type, and loses what is small beside the sum so far."""
    op = sound.shifted(name)

    def backward(grads, x, bias, scale, *, needs):  # type: ignore[no-untyped-def]
        grad = torch.where(x * scale + bias > 0, grads[0], 0)
        total = torch.zeros_like(bias)
        for row in grad.reshape(-1, bias.shape[0]):
            total = total + row
        return grad * scale, total

    op.register_backward("cpu", backward)
    return op


@mutation("gradient", "inputs_unchanged")
def saved_as_an_attribute(name: str) -> opsmith.Op:
    """ctx.x = x instead of save_for_backward: autograd does not see that x is changed before the backward."""
    op = sound.softsign(name)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.x, ctx.scale = inputs

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.scale / (1 + ctx.x.abs()) ** 2, None

    op.register_autograd(backward, setup_context=setup_context)
    return op
