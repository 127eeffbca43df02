"""The references of a pointwise op and of its gradients: torch's own results, laid out as TensorIterator would.

Gradients whose inputs were not saved are evaluated from the derived expressions, by torch's operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..reference.forms import Functional, Plain, Reference
from ..reference.tensors import is_placeholder
from ..reference.vjp import Vjp
from .compiler import Compiler
from .expression import Constant, Input, Node, Scalar, postorder
from .levels import Level, backward, expanded_results
from .specialise import TensorKind
from .text import HALF, computed_in

Sizes = tuple[int, ...]


class Elementwise(Plain):
    """The author's function, whose results are laid out as TensorIterator would lay them out."""

    keeps_layout = True

    def laid_out(self, returned: Any, args: Sequence[Any]) -> Any:
        if returned is None:
            return None
        results = [returned] if isinstance(returned, torch.Tensor) else list(returned)
        return self._packed([_laid_out(result, self._tensors(args)) for result in results])

    def run(self, *args: Any) -> Any:
        return self.laid_out(super().run(*args), args)

    def fake(self, *args: Any) -> Any:
        results = self.results(self(*args))
        if results is None:
            return None
        return self._packed([_empty(tuple(r.shape), r, self._tensors(args)) for r in results])

    def _tensors(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return [tensor for tensor in self.signature.flatten(args) if tensor is not None]


class ElementwiseFunctional(Elementwise, Functional):
    """An in-place function of the author as one that works on copies and returns them."""


class Pulled(Vjp):
    """The gradients of a pointwise op, or of its gradients. torch differentiates the reference; if inputs were not
    saved, because kernels do not need them, the derived expressions are evaluated instead."""

    keeps_layout = True

    def __init__(self, of: Reference, name: str, compiler: Compiler, role: str) -> None:
        super().__init__(of, name)
        self.take = functools.partial(compiler.arguments, role)
        self.compiler = compiler

    def laid_out(self, returned: Any, args: Sequence[Any]) -> Any:
        return [_laid_out(grad, self._tensors(args)) for grad in returned]

    def run(self, *args: Any) -> Any:
        complete = self._complete(args)
        found = super().run(*args) if complete else [grad.detach() for grad in self._evaluated(args)]
        return self.laid_out(found, args)

    def composite(self, *args: Any) -> Any:
        return super().composite(*args) if self._complete(args) else self._evaluated(args)

    def transformed(self, *args: Any) -> Any:
        return super().transformed(*args) if self._complete(args) else self._evaluated(args)

    def fake(self, *args: Any) -> Any:
        arguments = self.take(args)
        wanted = [t for t, needed in zip(arguments.tensors[arguments.grads :], arguments.needs, strict=False) if needed]
        return [_empty(tuple(t.shape), t, self._tensors(args)) for t in wanted if t is not None]

    def _complete(self, args: Sequence[Any]) -> bool:
        return not any(is_placeholder(tensor) for tensor in self.take(args).tensors)

    def _evaluated(self, args: Sequence[Any]) -> list[torch.Tensor]:
        arguments = self.take(args)
        level = self.compiler.level(arguments)
        assert level is not None
        apply: Any = _Evaluated.apply
        return list(apply(level, arguments.values, *arguments.tensors))

    def _tensors(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return [tensor for tensor in self.take(args).tensors if tensor is not None]


class _Evaluated(torch.autograd.Function):
    """A level's results by torch's operators. Its gradient is the next level's: each function by its own derivative,
    not torch's derivative of the expansion, which differs at kinks."""

    @staticmethod
    def forward(
        ctx: Any, level: Level, arguments: Sequence[Any], *tensors: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        shape = full_shape(level, tensors)
        assert shape is not None
        device = next(tensor.device for tensor in tensors if tensor is not None)
        values = _evaluate(expanded_results(level), tensors, arguments, device)
        ctx.call = level, arguments, [t if is_placeholder(t) else None for t in tensors]
        ctx.save_for_backward(*[None if is_placeholder(tensor) else tensor for tensor in tensors])
        ctx.set_materialize_grads(False)
        likes = [tensors[like] for like in level.likes]  # type: ignore[index]
        return tuple(_summed(value, shape, like) for value, like in zip(values, likes, strict=True))  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        level, arguments, shapes = ctx.call
        tensors = [shape if saved is None else saved for saved, shape in zip(ctx.saved_tensors, shapes, strict=True)]
        needs = list(ctx.needs_input_grad[2:])
        none: list[Any] = [None] * len(grads)
        kinds = [None if grad is None else TensorKind(grad.dtype, False) for grad in grads]
        above = backward(level, f"{level.name}_backward", kinds, none, needs)
        found = iter(_Evaluated.apply(above, arguments, *grads, *tensors, *none))  # type: ignore[no-untyped-call]
        return None, None, *[next(found) if needed else None for needed in needs]


_SPECIAL: dict[str, Callable[..., Any]] = {
    "neg": torch.neg, "absolute": torch.abs, "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift, "pow_general": torch.pow, "integer_pow": torch.pow,
    "less_equal": torch.le, "greater_equal": torch.ge, "equal": torch.eq, "not_equal": torch.ne,
    "select": torch.where, "is_nan": torch.isnan, "is_inf": torch.isinf, "is_finite": torch.isfinite,
    "sign_bit": torch.signbit, "normal_cdf": torch.special.ndtr, "sinc": torch.sinc,
    "integer_trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "softplus": lambda x: -torch.nn.functional.logsigmoid(-x),
    "normal_pdf": lambda x: torch.exp(-0.5 * x * x) * 0.3989422804014327,
}  # fmt: skip


def _evaluate(
    roots: Sequence[Node], tensors: Sequence[torch.Tensor | None], arguments: Sequence[Any], device: torch.device
) -> list[torch.Tensor]:
    """The values of expressions, broadcast as their inputs are."""
    values: dict[Node, Any] = {}
    for node in postorder(roots):
        if isinstance(node, Input):
            tensor = tensors[node.slot]
            assert tensor is not None
            values[node] = tensor.to(node.dtype)
        elif isinstance(node, Constant):
            values[node] = torch.tensor(node.value, dtype=node.dtype, device=device)
        elif isinstance(node, Scalar):
            values[node] = torch.tensor(arguments[node.position], dtype=node.dtype, device=device)
        else:
            assert node.function is not None
            args = [values[arg] for arg in node.args]
            if node.function.name == "cast":
                values[node] = args[0].to(node.dtype)
                continue
            args = [arg.to(computed_in(arg.dtype)) if arg.dtype in HALF else arg for arg in args]
            function = _SPECIAL.get(node.function.name) or getattr(torch, node.function.name)
            values[node] = function(*args)
    return [values[root] for root in roots]


def _summed(value: torch.Tensor, shape: Sizes, like: torch.Tensor) -> torch.Tensor:
    """An expression's value as the gradient of a tensor. If the function does not use the tensor, it may have any shape
    and its gradient is zero."""
    if broadcast([shape, tuple(like.shape)]) != shape:
        return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    return value.expand(shape).sum_to_size(like.shape).to(like.dtype)


def _laid_out(result: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    strides = result_strides(tuple(result.shape), tensors)
    if strides == result.stride() or result.numel() == 0:
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device).copy_(result)


def _empty(sizes: Sizes, like: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.empty_strided(sizes, result_strides(sizes, tensors), dtype=like.dtype, device=like.device)


# --- the layout of results --------------------------------------------------------------------------------------------
#
# The launch planner (launch/planner) follows the same rule for the results of kernels. It is also here in Python, since
# the sizes of a fake tensor may be symbolic; a test compares the two.


def broadcast(shapes: Sequence[Sequence[int]]) -> Sizes | None:
    """The shape that all broadcast to, or None if they do not."""
    shape: list[int] = [1] * max((len(each) for each in shapes), default=0)
    for each in shapes:
        for position, size in enumerate(reversed(each), start=1):
            if shape[-position] == 1:
                shape[-position] = size
            elif size != 1 and size != shape[-position]:
                return None
    return tuple(shape)


def full_shape(level: Level, tensors: Sequence[torch.Tensor | None]) -> Sizes | None:
    """The shape of all results, before any is summed; None if they differ."""
    shapes = {
        broadcast([tuple(tensors[slot].shape) for slot in group])  # type: ignore[union-attr]
        for group in level.shaped_by
    }
    return shapes.pop() if len(shapes) == 1 else None


def result_strides(sizes: Sizes, tensors: Sequence[torch.Tensor]) -> Sizes:
    """The strides of a new result of these sizes, computed from these tensors."""
    shape = broadcast([tuple(tensor.shape) for tensor in tensors]) or sizes
    relevant = [tensor for tensor in tensors if broadcast([shape, tuple(tensor.shape)]) == shape]
    return _dense_strides(sizes, _order(shape, relevant), len(shape))


def _order(shape: Sizes, tensors: Sequence[torch.Tensor]) -> Sequence[int]:
    """The dimensions of `shape` from the innermost to the outermost."""
    ndim = len(shape)
    order = list(range(ndim - 1, -1, -1))
    if ndim < 2 or all(tuple(tensor.shape) == shape and _is_contiguous(tensor) for tensor in tensors):
        return order
    strides_of = [_expanded(tensor, shape) for tensor in tensors]

    def compare(first: int, second: int) -> int:
        """1 if `first` must lie outside of `second`, -1 if inside, 0 if no tensor decides."""
        for strides in strides_of:
            if strides[first] == 0 or strides[second] == 0:
                continue
            if strides[first] != strides[second]:
                return -1 if strides[first] < strides[second] else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    for index in range(1, ndim):
        moving = index
        for other in range(index - 1, -1, -1):
            comparison = compare(order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    return order


def _expanded(tensor: torch.Tensor, shape: Sizes) -> Sizes:
    """The strides of a tensor expanded to `shape`: zero where it is repeated."""
    missing = len(shape) - tensor.dim()
    sizes = zip(tensor.shape, tensor.stride(), shape[missing:], strict=True)
    return (0,) * missing + tuple(0 if size == 1 and full != 1 else stride for size, stride, full in sizes)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _dense_strides(sizes: Sizes, order: Sequence[int], ndim: int) -> Sizes:
    """Strides without gaps, in the order of the `ndim` dimensions that a result broadcasts to."""
    missing = ndim - len(sizes)
    strides: list[Any] = [1] * len(sizes)
    step = 1
    for dimension in order:
        if dimension >= missing:
            strides[dimension - missing] = step
            size = sizes[dimension - missing]
            if not isinstance(size, int) or size > 1:
                step = step * size
    return tuple(strides)
