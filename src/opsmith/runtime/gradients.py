"""Gradient recording in Python: what an operator does on the Autograd key. native/gradients.h is the C++ tier's.

Five cases, in this order: an input has a tangent (the reference runs, and torch's operators propagate it); nothing
needs a gradient (the call continues below autograd); the author wrote the gradient with torch operators (that one is
recorded); the operator has no backward operator (the reference runs again, recorded by torch); else a node is recorded
that saves what the backward operator takes and calls it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from ..errors import KernelResultError, RedeclaredError, UnsavedInputError
from ..reference.signature import Kind, flatten, unflatten
from ..reference.tensors import dtype_class, is_placeholder, placeholder
from .execution import as_list, execute

if TYPE_CHECKING:
    from .operator import Operator

_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_grad_enabled = torch.is_grad_enabled
_unpack_dual = torch._VF._unpack_dual
_transforms_active = torch._C._are_functorch_transforms_active

# The Python types that stand for a schema type with no conversion left for the dispatcher to do.
_EXACT: dict[str, tuple[type, ...]] = {
    "Tensor": (torch.Tensor, torch.nn.Parameter),
    "float": (float,),
    "SymInt": (int,),
    "bool": (bool,),
    "str": (str,),
}
_PLAIN_DEVICES = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)


def kernel(operator: Operator, keyset: torch._C.DispatchKeySet, args: tuple[Any, ...]) -> Any:
    tensors = operator.signature.flatten(args)
    if has_tangent(tensors):
        return operator.open(*args)
    if not (torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors])):  # noqa: C419
        return below(operator, keyset, args)
    recorded: Any = _Recorded if operator.written_gradient is None else _Written
    if operator.backward is None and recorded is _Recorded:
        return operator.open(*args)
    if operator.inert:
        tensors = [
            tensor if tensor is None or argument.name not in operator.inert else tensor.detach()
            for argument, tensor in operator.signature.named_tensors(args)
        ]
    if torch._C._are_functorch_transforms_active():
        # The dispatcher has already reached one level of the transform: this function belongs to that level only.
        with enable_single_level_autograd_function():
            results = recorded.apply(operator, keyset, args, *tensors)
    else:
        results = recorded.apply(operator, keyset, args, *tensors)
    return list(results) if operator.signature.returns_list else results


def direct(operator: Operator) -> Callable[..., Any]:
    """The operator called without the dispatcher, where the dispatcher would only lead back here: plain tensors on a
    device with a checked kernel, and no active mode, transform or tangent. Any other call goes through the
    dispatcher."""
    call, signature = operator.call, operator.signature
    expected = [_EXACT.get(argument.type, ()) for argument in signature.arguments]
    positions = signature.tensor_positions
    if positions is None or signature.mutated or operator.inert or not all(expected):
        return call
    first = positions[0]

    def function(*args: Any) -> Any:
        if (
            len(args) != len(expected)
            or _dispatch_modes()
            or _function_modes()
            or _transforms_active()
            or forward_ad._current_level >= 0
            or operator.autocast
        ):
            return call(*args)
        for value, kinds in zip(args, expected):  # noqa: B905 - their lengths were compared
            if type(value) not in kinds:
                return call(*args)
        kernel = operator.kernels.get(args[first].device.type)
        if kernel is None or not kernel.checked or operator.written_gradient is not None:
            return call(*args)
        needs_grad = False
        for position in positions:
            tensor = args[position]
            if tensor.is_conj() or tensor.is_neg():  # lazy: the dispatcher resolves these before a kernel reads
                return call(*args)
            needs_grad = needs_grad or tensor.requires_grad
        if needs_grad and _grad_enabled():
            tensors = [args[each] for each in positions]
            return _Recorded.apply(operator, None, args, *tensors)  # type: ignore[attr-defined]
        return execute(operator, args)

    return function


def below(operator: Operator, keyset: torch._C.DispatchKeySet, args: Sequence[Any]) -> Any:
    rest = keyset & torch._C._after_ADInplaceOrView_keyset
    with torch._C._AutoDispatchBelowAutograd():
        if rest.highestPriorityTypeId() in _PLAIN_DEVICES and not operator.signature.mutated:
            return execute(operator, args)  # Only the device key is left: the dispatcher would come here too.
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, args)


def bump_versions(operator: Operator, keyset: torch._C.DispatchKeySet, args: Sequence[Any]) -> None:
    """The ADInplaceOrView kernel of an operator that mutates: autograd must know that those tensors have changed."""
    operator.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, args)
    for argument, value in zip(operator.signature.arguments, args, strict=True):
        if argument.mutated and not value.is_inference():
            torch.autograd.graph.increment_version(value)


def has_tangent(tensors: Sequence[torch.Tensor | None]) -> bool:
    # Code that dynamo compiled does not maintain forward_ad's level, but then a mode or transform is active.
    if forward_ad._current_level < 0 and not (_dispatch_modes() or _transforms_active()):
        return False
    strided = (tensor for tensor in tensors if tensor is not None and tensor.layout is torch.strided)
    return any(_unpack_dual(tensor, level=0)[1] is not None for tensor in strided)


def _kept(
    operator: Operator, args: Sequence[Any], tensors: Sequence[torch.Tensor | None], results: Sequence[torch.Tensor]
) -> tuple[tuple[str, ...] | None, Sequence[torch.Tensor | None], Sequence[torch.Tensor | None]]:
    """What a call saves for its backward: (the names that the device's backward kernel needs, or None; inputs;
    results).

    With a derived backward that is every input and no result. Else it is what the kernel names, and placeholders for
    the other inputs. Under a transform or tracer every input is saved, since derived parts of the backward may run."""
    if operator.keeps_every_input:
        return None, tensors, ()
    names = _saved_names(operator, tensors)
    if names is None:
        return None, tensors, ()
    result_names = operator.signature.result_names
    if operator.signature.returns_list:
        result_names *= len(results)
    kept_results = [result if name in names else None for name, result in zip(result_names, results, strict=True)]
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return names, tensors, kept_results
    unsaved: Any = _Unsaved
    with torch.enable_grad():
        kept_inputs = [
            tensor if tensor is None or argument.name in names
            else placeholder(tensor) if operator.saves_suffice
            else unsaved.apply(operator.name, argument.name, tensor)
            for (argument, _), tensor in zip(operator.signature.named_tensors(args), tensors, strict=True)
        ]  # fmt: skip
    return names, kept_inputs, kept_results


class _Unsaved(_SingleLevelFunction):
    """Keeps an input's shape and its place in the graph, but not its memory. A second gradient, which would need the
    input, reaches this node and raises; without the node it would silently miss a term."""

    @staticmethod
    def forward(ctx: Any, operator: str, argument: str, tensor: torch.Tensor) -> torch.Tensor:
        ctx.names = operator, argument
        return placeholder(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        operator, argument = ctx.names
        raise UnsavedInputError(operator, [argument])


class _Recorded(_SingleLevelFunction):
    """One recorded call: (operator, keyset, args) pass through, the flattened tensors are what autograd sees."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, keyset: Any, args: Sequence[Any], *tensors: torch.Tensor | None) -> Any:
        if keyset is None:
            returned = execute(operator, args)
        else:
            returned = _at_lower_levels(operator, keyset, operator.signature.unflatten(args, tensors))
        results = (returned,) if type(returned) is torch.Tensor else as_list(returned)
        names, inputs, kept_results = _kept(operator, args, tensors, results)
        # Placeholders are not saved as tensors: a saved-tensor hook would read their memory.
        shapes = {} if names is None else {i: t for i, t in enumerate(inputs) if is_placeholder(t)}
        saved = [None if index in shapes else tensor for index, tensor in enumerate(inputs)] if shapes else inputs
        ctx.save_for_backward(*saved, *kept_results)
        present = None if all(tensor is not None for tensor in tensors) else [t is not None for t in tensors]
        ctx.call = operator, operator.signature.without_tensors(args), len(tensors), names, shapes, present
        ctx.set_materialize_grads(False)
        _mark_discrete(ctx, results)
        return tuple(returned) if operator.signature.returns_list else returned

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        operator, args, count, names, shapes, present = ctx.call
        needs = _asked_for(ctx, present)
        if not any(needs) or all(grad is None for grad in grads):
            return (None,) * (3 + len(needs))
        saved = ctx.saved_tensors
        tensors = [shapes.get(index, tensor) for index, tensor in enumerate(saved[:count])]
        if names is not None and _saved_names(operator, tensors) != names:
            raise RedeclaredError(operator.name)
        found: list[torch.Tensor | None] = [None] * len(needs)
        for index, grad in _passed_through(operator, shapes, grads):
            if needs[index]:
                found[index], needs[index] = grad, False
        if any(needs):
            results = list(saved[count:]) or [None] * len(grads)
            inputs = operator.signature.unflatten(args, tensors)
            computed = operator.call_backward(list(grads), inputs, results, needs)
            if len(computed) != sum(needs):
                what = f"it returned {len(computed)} gradients where {sum(needs)} were requested"
                raise KernelResultError(f"{operator.name}_backward", "of the backward", what)
            left = iter(computed)
            found = [next(left) if needed else grad for needed, grad in zip(needs, found, strict=True)]
        return (None, None, None, *found)


def _passed_through(
    operator: Operator, shapes: dict[int, torch.Tensor], grads: Sequence[torch.Tensor | None]
) -> Iterator[tuple[int, torch.Tensor]]:
    """The gradients that inputs share with a result, by input position. `shapes`: placeholders of inputs that are not
    saved."""
    for index, kept in shapes.items():
        places = operator.passthrough(kept.device.type)
        place = None if places is None else places[index]
        grad = None if place is None else grads[place]
        if grad is not None and (grad.shape, grad.dtype, grad.device) == (kept.shape, kept.dtype, kept.device):
            yield index, grad


def _at_lower_levels(operator: Operator, keyset: Any, args: Sequence[Any]) -> Any:
    """The call below autograd, from within an autograd.Function, which has switched gradients off. That applies to its
    own level; lower levels of a transform must keep recording."""
    if not torch._C._are_functorch_transforms_active():
        return below(operator, keyset, args)
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        return below(operator, keyset, args)


def _saved_names(operator: Operator, tensors: Sequence[torch.Tensor | None]) -> tuple[str, ...] | None:
    """The names that the backward kernel needs of a call with these tensors."""
    device = next(tensor.device.type for tensor in tensors if tensor is not None)
    return operator.saved_names(device, dtype_class(tensors))


def _mark_discrete(ctx: Any, results: Sequence[torch.Tensor]) -> None:
    for result in results:
        if not (result.is_floating_point() or result.is_complex()):
            ctx.mark_non_differentiable(*[r for r in results if not (r.is_floating_point() or r.is_complex())])
            return


def _asked_for(ctx: Any, present: list[bool] | None) -> list[bool]:
    """Which of the recorded tensors need a gradient in this backward: those that require one, except those that
    torch.autograd.grad(inputs=...) leaves out. `present`: which tensors were given at all; torch has no edge for the
    others."""
    needs = list(ctx.needs_input_grad[3:])
    if sum(needs) < 2:
        return needs
    there = [index for index in range(len(needs)) if present is None or present[index]]
    for index, (node, _) in zip(there, ctx.next_functions[-len(there) :], strict=True):
        if needs[index] and node is not None:
            with contextlib.suppress(RuntimeError):  # raised for a leaf that was requested
                needs[index] = torch._C._will_engine_execute_node(node)
    return needs


class WrittenGradient(NamedTuple):
    """The arguments of register_autograd."""

    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None


class _Written(_SingleLevelFunction):
    """A call whose gradient the author wrote with torch operators. torch.library's own class for this does not work
    under torch.func; this one does, and calls the author's functions the same way."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, keyset: Any, args: Sequence[Any], *tensors: torch.Tensor | None) -> Any:
        values = operator.signature.unflatten(args, tensors)
        returned = _at_lower_levels(operator, keyset, values)
        ctx.call = operator, operator.signature.without_tensors(args)
        written = operator.written_gradient
        assert written is not None
        if written.setup_context is not None:
            positional, keyword = operator.signature.arranged(values)
            extra = {"keyword_only_inputs": keyword} if keyword else {}
            written.setup_context(ctx=ctx, inputs=tuple(positional), output=returned, **extra)
        _mark_discrete(ctx, as_list(returned))
        return tuple(returned) if operator.signature.returns_list else returned

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        operator, args = ctx.call
        positional, _ = operator.signature.arranged(args)
        arguments = operator.signature.arguments[: len(positional)]
        flags, count = ctx.needs_input_grad[3:], len(flatten(arguments, positional))
        values = [value if argument.is_tensor else False for argument, value in zip(arguments, positional, strict=True)]
        before, ctx.needs_input_grad = ctx.needs_input_grad, tuple(unflatten(arguments, values, flags[:count]))
        try:
            listed = (list(grads),) if operator.signature.returns_list else grads
            returned = operator.written_gradient.backward(ctx, *listed)
        finally:
            ctx.needs_input_grad = before
        entries = list(returned) if isinstance(returned, tuple) else [returned]
        found: list[Any] = []
        for argument, value, entry in zip(arguments, positional, entries, strict=True):
            if argument.kind in (Kind.TENSOR, Kind.OPTIONAL_TENSOR):
                found.append(entry)
            elif argument.is_tensor:
                found.extend([None] * len(value) if entry is None else entry)
        return (None, None, None, *found, *[None] * (len(flags) - count))
