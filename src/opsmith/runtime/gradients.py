"""Gradient recording in Python: what an operator does on the Autograd key. The twin of gradients.cpp.

Four cases, in this order: an input carries a tangent (the reference runs in the open, and torch's operators carry it on);
nothing needs a gradient (straight down); the operator has no backward operator of its own (the reference in the open
again); else a node is recorded that keeps what the backward operator takes and calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from ..reference import placeholder
from ..schema import flatten, unflatten
from .execution import as_list

if TYPE_CHECKING:
    from ..registration import Operator


def kernel(operator: Operator, keyset: torch._C.DispatchKeySet, args: tuple[Any, ...]) -> Any:
    tensors = flatten(operator.signature.arguments, args)
    if has_tangent(tensors):
        return operator.open(*args)
    if not (torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)):
        return below(operator, keyset, args)
    if operator.written_gradient is not None:
        return operator.written_gradient(keyset, *args)
    if operator.backward is None:
        return operator.open(*args)
    tensors = [
        tensor if tensor is None or name not in operator.inert else tensor.detach()
        for name, tensor in zip(_owners(operator, args), tensors, strict=True)
    ]
    call = _Call(operator, keyset, args, tensors)
    if torch._C._are_functorch_transforms_active():
        # The dispatcher has brought the call to one level of the transform already: this function is of that level alone.
        with enable_single_level_autograd_function():
            results = _Recorded.apply(call, *tensors)
    else:
        results = _Recorded.apply(call, *tensors)
    if operator.signature.returns_list:
        return list(results)
    return results[0] if len(results) == 1 else results


def below(operator: Operator, keyset: torch._C.DispatchKeySet, args: Sequence[Any]) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, args)


def bump_versions(operator: Operator, keyset: torch._C.DispatchKeySet, args: Sequence[Any]) -> None:
    """The ADInplaceOrView kernel of an operator that mutates: autograd must learn that those tensors have changed."""
    operator.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, args)
    for argument, value in zip(operator.signature.arguments, args, strict=True):
        if argument.mutated and not value.is_inference():
            torch.autograd.graph.increment_version(value)


def has_tangent(tensors: Sequence[torch.Tensor | None]) -> bool:
    if forward_ad._current_level < 0:
        return False
    return any(t is not None and forward_ad.unpack_dual(t, level=0).tangent is not None for t in tensors)


def _kept(
    operator: Operator, args: Sequence[Any], tensors: Sequence[torch.Tensor | None], results: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """What the backward operator will be given: every input and no result, or what the device's backward kernel names
    and shapes for the rest. Under a transform or a tracer every input is kept, for there the derived parts of the
    backward may be asked too."""
    names = operator.saved_names(next(tensor.device.type for tensor in tensors if tensor is not None))
    if names is None:
        return [*tensors, *[None] * len(results)]
    result_names = operator.signature.result_names * (len(results) if operator.signature.returns_list else 1)
    kept_results = [result if name in names else None for name, result in zip(result_names, results, strict=True)]
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return [*tensors, *kept_results]
    kept_inputs = [
        tensor if tensor is None or name in names else placeholder(tensor)
        for name, tensor in zip(_owners(operator, args), tensors, strict=True)
    ]
    return [*kept_inputs, *kept_results]


def _owners(operator: Operator, args: Sequence[Any]) -> list[str]:
    """The argument each flattened tensor belongs to."""
    return [
        argument.name
        for argument, value in zip(operator.signature.arguments, args, strict=True)
        if argument.is_tensor
        for _ in flatten([argument], [value])
    ]


class _Call:
    """One call being recorded: plain data that autograd.Function passes through."""

    __slots__ = ("args", "keyset", "operator", "tensors")

    def __init__(self, operator: Operator, keyset: Any, args: tuple[Any, ...], tensors: list[Any]) -> None:
        self.operator = operator
        self.keyset = keyset
        self.args = args
        self.tensors = tensors


class _Recorded(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        operator = call.operator
        results = as_list(below(operator, call.keyset, unflatten(operator.signature.arguments, call.args, tensors)))
        ctx.save_for_backward(*_kept(operator, call.args, tensors, results))
        ctx.operator = operator
        ctx.values = unflatten(operator.signature.arguments, call.args, [None] * len(tensors))
        ctx.inputs = len(tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[r for r in results if not (r.is_floating_point() or r.is_complex())])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        operator: Operator = ctx.operator
        needs = [bool(flag) for flag in ctx.needs_input_grad[1:]]
        if all(grad is None for grad in grads) or not any(needs):
            return (None,) * (1 + len(needs))
        saved = ctx.saved_tensors
        inputs = unflatten(operator.signature.arguments, ctx.values, saved[: ctx.inputs])
        found = iter(operator.call_backward(list(grads), inputs, list(saved[ctx.inputs :]), needs))
        return (None, *[next(found) if needed else None for needed in needs])
