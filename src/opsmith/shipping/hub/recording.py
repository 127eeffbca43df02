"""Recording gradients in a kernel for the Hub, on torch alone: what a call saves, and the backward operator's call.

The bundler copies this code into the generated file, as it does with operators.py.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .operators import Functional


def record(operator: Functional, values: Sequence[Any]) -> Any:
    """A call on the Autograd key. torch.func and forward mode go through the reference."""
    tensors = operator.tensors(values)
    if torch._C._are_functorch_transforms_active() or any(has_tangent(tensor) for tensor in tensors):
        layout = torch.preserve_format if operator.keeps_layout else torch.contiguous_format
        return operator.packed([each.clone(memory_format=layout) for each in operator.composite(values)])
    if not (torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)):
        return operator.call_below(values)
    if operator.backward is None:
        return operator.packed(operator.composite(values))
    if operator.inert:
        pairs = zip(operator.owners(values), tensors, strict=True)
        tensors = [each.detach() if each is not None and name in operator.inert else each for name, each in pairs]
    apply: Any = Recorded.apply
    results = apply(operator, values, *tensors)
    return list(results) if operator.returns_list else results


class Recorded(torch.autograd.Function):
    """One recorded call: it saves what the backward operator takes, and calls it."""

    @staticmethod
    def forward(ctx: Any, operator: Functional, values: Sequence[Any], *tensors: torch.Tensor | None) -> Any:
        returned = operator.call_below(operator.filled(values, tensors))
        results = [returned] if isinstance(returned, torch.Tensor) else list(returned)
        names, kept = operator.saved(tensors)
        unsaved = {
            index: (tensor.shape, tensor.dtype, tensor.device, owner)
            for index, (owner, tensor) in enumerate(zip(operator.owners(values), tensors, strict=True))
            if names is not None and tensor is not None and owner not in names
        }
        inputs = [None if index in unsaved else tensor for index, tensor in enumerate(tensors)]
        pairs = zip(result_names(operator, results), results, strict=True)
        ctx.save_for_backward(*inputs, *(result if name in kept else None for name, result in pairs))
        ctx.call = operator, operator.filled(values, [None] * len(tensors)), len(tensors), unsaved
        ctx.set_materialize_grads(False)
        discrete = [each for each in results if not (each.is_floating_point() or each.is_complex())]
        if discrete:
            ctx.mark_non_differentiable(*discrete)
        return tuple(returned) if operator.returns_list else returned

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        operator, values, count, unsaved = ctx.call
        needs = list(ctx.needs_input_grad[2:])
        found: list[torch.Tensor | None] = [None] * count
        if not any(needs) or all(grad is None for grad in grads):
            return None, None, *found
        missing = ", ".join(dict.fromkeys(name for *_, name in unsaved.values()))
        if unsaved and torch.is_grad_enabled():
            raise RuntimeError(
                f"{operator.name} has no second gradient here: its backward kernel does not read {missing}, which "
                "was not saved. Leave out create_graph=True."
            )
        saved = ctx.saved_tensors
        tensors = [placeholder(*unsaved[i][:3]) if i in unsaved else tensor for i, tensor in enumerate(saved[:count])]
        device = next(tensor.device.type for tensor in tensors if tensor is not None)
        for index, place in enumerate(operator.passthrough.get(device, ())):
            grad, tensor = None if place is None else grads[place], tensors[index]
            if grad is not None and tensor is not None and needs[index] and is_like(grad, tensor):
                found[index], needs[index] = grad, False
        if any(needs):
            results = list(saved[count:]) or [None] * len(grads)
            listed = operator.returns_list
            inputs = operator.filled(values, tensors)
            operator.backward.unsaved[threading.get_ident()] = missing
            try:
                pulled = operator.backward.call([
                    *([list(grads)] if listed else grads), *inputs, *([results] if listed else results), needs
                ])  # fmt: skip
            finally:
                del operator.backward.unsaved[threading.get_ident()]
            rest = iter(pulled)
            found = [next(rest) if needed else grad for needed, grad in zip(needs, found, strict=True)]
        return None, None, *found


def result_names(operator: Functional, results: Sequence[torch.Tensor]) -> Sequence[str]:
    """The names by which a backward kernel refers to results."""
    if operator.returns_list:
        return ["outputs"] * len(results)
    return ["output"] if len(results) == 1 else [f"output_{index}" for index in range(len(results))]


def placeholder(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Replaces a tensor that was not saved, with its shape and a single element of memory. No kernel reads it,
    and the reference refuses the call (Gradient.unsaved)."""
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


def is_like(grad: torch.Tensor, tensor: torch.Tensor) -> bool:
    return (grad.shape, grad.dtype, grad.device) == (tensor.shape, tensor.dtype, tensor.device)


def has_tangent(tensor: torch.Tensor | None) -> bool:
    forward = torch.autograd.forward_ad
    if tensor is None or forward._current_level < 0:
        return False
    return forward.unpack_dual(tensor).tangent is not None
