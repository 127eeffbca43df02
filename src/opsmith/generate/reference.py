"""The references of a generated op and of its gradients: torch's own results, laid out as its kernels lay them out.

Gradients whose inputs were not saved are evaluated from the derived expressions, by torch's operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..reference.forms import Functional, Plain, Reference
from ..reference.signature import Signature
from ..reference.tensors import is_placeholder
from ..reference.vjp import Vjp
from .compiler import Arguments, Compiler
from .expression import Column, Constant, Form, Input, Node, Scalar, postorder
from .levels import Level, backward, expanded_results
from .specialise import TensorKind
from .text import HALF, computed_in

Sizes = tuple[int, ...]


class Generated(Plain):
    """The author's function, whose results are laid out as its kernels lay them out."""

    keeps_layout = True

    def __init__(self, function: Callable[..., Any], signature: Signature, name: str, compiler: Compiler) -> None:
        super().__init__(function, signature, name)
        self.compiler = compiler

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        return not self.compiler.rows

    def laid_out(self, returned: Any, args: Sequence[Any]) -> Any:
        if returned is None:
            return None
        results = [returned] if isinstance(returned, torch.Tensor) else list(returned)
        return self._packed(_laid_out(results, self.compiler, self.compiler.forward_arguments(args)))

    def run(self, *args: Any) -> Any:
        return self.laid_out(super().run(*args), args)

    def fake(self, *args: Any) -> Any:
        results = self.results(self(*args))
        if results is None:
            return None
        return self._packed(_empty(results, self.compiler, self.compiler.forward_arguments(args)))


class GeneratedFunctional(Generated, Functional):
    """An in-place function of the author as one that works on copies and returns them."""

    def __init__(self, inplace: Generated, name: str) -> None:
        Functional.__init__(self, inplace, name)
        self.compiler = inplace.compiler


class Pulled(Vjp):
    """The gradients of a generated op, or of its gradients. torch differentiates the reference; if inputs were not
    saved, because kernels do not need them, the derived expressions are evaluated instead."""

    keeps_layout = True

    def __init__(self, of: Reference, name: str, compiler: Compiler, role: str) -> None:
        super().__init__(of, name)
        self.take = functools.partial(compiler.arguments, role)
        self.compiler = compiler

    def laid_out(self, returned: Any, args: Sequence[Any]) -> Any:
        return _laid_out(returned, self.compiler, self.take(args))

    def run(self, *args: Any) -> Any:
        args = self._filled(args)
        complete = self._complete(args)
        found = super().run(*args) if complete else [grad.detach() for grad in self._evaluated(args)]
        return self.laid_out(found, args)

    def composite(self, *args: Any) -> Any:
        args = self._filled(args)
        return super().composite(*args) if self._complete(args) else self._evaluated(args)

    def transformed(self, *args: Any) -> Any:
        args = self._filled(args)
        return super().transformed(*args) if self._complete(args) else self._evaluated(args)

    def fake(self, *args: Any) -> Any:
        arguments = self.take(args)
        wanted = [t for t, needed in zip(arguments.tensors[arguments.grads :], arguments.needs, strict=False) if needed]
        return _empty([t for t in wanted if t is not None], self.compiler, arguments)

    def _complete(self, args: Sequence[Any]) -> bool:
        return not any(is_placeholder(tensor) for tensor in self.take(args).tensors)

    def _filled(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with zeros for tensors that were not saved, if no kernel can compute the call: a row of one
        element where others have more. The gradients do not depend on the values of these tensors."""
        if not self.compiler.rows or self._complete(args):
            return args
        arguments = self.take(args)
        level = self.compiler.level(arguments)
        assert level is not None
        if full_shape(level, arguments.tensors) is not None:
            return args
        read = {each.slot for each in level.program().reads}
        assert not any(is_placeholder(arguments.tensors[slot]) for slot in read)
        return tuple(each.new_zeros(each.shape) if is_placeholder(each) else each for each in args)

    def _evaluated(self, args: Sequence[Any]) -> list[torch.Tensor]:
        arguments = self.take(args)
        level = self.compiler.level(arguments)
        assert level is not None
        apply: Any = _Evaluated.apply
        return list(apply(level, arguments.values, *arguments.tensors))


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
        values = _evaluate(level, shape, tensors, arguments, device)
        ctx.call = level, arguments, [t if is_placeholder(t) else None for t in tensors]
        ctx.save_for_backward(*[None if is_placeholder(tensor) else tensor for tensor in tensors])
        ctx.set_materialize_grads(False)
        found = []
        for value, like in zip(values, level.likes, strict=True):
            assert not isinstance(like, Form)  # a gradient
            tensor = tensors[like]
            assert tensor is not None
            found.append(_summed(value, _places(level, like, shape), _aligned(level, like, tensor)).view(tensor.shape))
        return tuple(found)

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
    level: Level,
    shape: Sizes,
    tensors: Sequence[torch.Tensor | None],
    arguments: Sequence[Any],
    device: torch.device,
) -> list[torch.Tensor]:
    """The values of a level's results, broadcast as its inputs are."""
    values: dict[Node, Any] = {}
    row = _Row(level, shape)
    roots = expanded_results(level)
    for node in postorder(roots):
        if isinstance(node, Input):
            tensor = tensors[node.slot]
            assert tensor is not None
            values[node] = _aligned(level, node.slot, tensor).to(node.dtype)
        elif isinstance(node, Constant):
            values[node] = torch.tensor(node.value, dtype=node.dtype, device=device)
        elif isinstance(node, Scalar):
            number = arguments[node.position] if node.position >= 0 else shape[node.position]
            values[node] = torch.tensor(number, dtype=node.dtype, device=device)
        elif isinstance(node, Column):
            values[node] = row.columns(device)
        else:
            assert node.function is not None
            args = [values[arg] for arg in node.args]
            if node.function.name == "cast":
                values[node] = args[0].to(node.dtype)
                continue
            args = [arg.to(computed_in(arg.dtype)) if arg.dtype in HALF else arg for arg in args]
            if node.function.reduces:
                values[node] = row.reduce(node.function.name, args)
                continue
            function = _SPECIAL.get(node.function.name) or getattr(torch, node.function.name)
            values[node] = function(*args)
    return [values[root] for root in roots]


class _Row:
    """Functions of a row by torch's operators."""

    def __init__(self, level: Level, shape: Sizes) -> None:
        self.dimensions = level.rows.dimensions if level.rows is not None else ()
        self.sizes = tuple(size if d - len(shape) in self.dimensions else 1 for d, size in enumerate(shape))

    def columns(self, device: torch.device) -> torch.Tensor:
        (dimension,) = self.dimensions
        return torch.arange(self.sizes[dimension], device=device).view((-1, *(1,) * (-dimension - 1)))

    def reduce(self, name: str, args: Sequence[torch.Tensor]) -> torch.Tensor:
        value = args[0]
        shape = broadcast([tuple(value.shape), self.sizes])
        assert shape is not None
        whole = value.expand(shape)
        if name == "row_at":
            (dimension,) = self.dimensions
            one = broadcast([shape, tuple(args[1].shape)])
            assert one is not None
            index = args[1].expand([1 if d - len(one) == dimension else size for d, size in enumerate(one)])
            return whole.expand(one).gather(dimension, index)
        return _REDUCTIONS[name](whole, self.dimensions, keepdim=True)


_REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "row_sum": torch.sum, "row_max": torch.amax, "row_min": torch.amin, "row_any": torch.any, "row_all": torch.all,
}  # fmt: skip


def _aligned(level: Level, slot: int, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with dimensions of size one along the row, if it has none there."""
    if level.rows is not None and level.form(slot) is Form.SQUEEZED:
        for dimension in reversed(level.rows.dimensions):
            if tensor.dim() >= -dimension - 1:
                tensor = tensor.unsqueeze(dimension)
    return tensor


def _places(level: Level, slot: int, shape: Sizes) -> Sizes:
    """The shape of a gradient before it is summed: one value per row, if the tensor has no more."""
    if level.rows is None or level.form(slot) is Form.FULL:
        return shape
    return tuple(1 if d - len(shape) in level.rows.dimensions else size for d, size in enumerate(shape))


def _summed(value: torch.Tensor, shape: Sizes, like: torch.Tensor) -> torch.Tensor:
    """An expression's value as the gradient of a tensor. If the function does not use the tensor, it may have any shape
    and its gradient is zero."""
    if broadcast([shape, tuple(like.shape)]) != shape:
        return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    return value.expand(shape).sum_to_size(like.shape).to(like.dtype)


def _laid_out(results: Sequence[torch.Tensor], compiler: Compiler, arguments: Arguments) -> list[torch.Tensor]:
    found = []
    for result, strides in zip(results, _strides(results, compiler, arguments), strict=True):
        if strides != result.stride() and result.numel() != 0:
            empty = torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)
            result = empty.copy_(result)
        found.append(result)
    return found


def _empty(results: Sequence[torch.Tensor], compiler: Compiler, arguments: Arguments) -> list[torch.Tensor]:
    """New tensors for results like these, not computed."""
    return [
        torch.empty_strided(tuple(result.shape), strides, dtype=result.dtype, device=result.device)
        for result, strides in zip(results, _strides(results, compiler, arguments), strict=True)
    ]


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
    """The full shape, before any result is summed; None if one kernel cannot compute the call."""
    sizes = {slot: tuple(_aligned(level, slot, t).shape) for slot, t in enumerate(tensors) if t is not None}
    shape = broadcast([sizes[slot] for each in level.covers for slot in each.slots])
    if shape is None:
        return None
    for each in level.covers:
        covered = broadcast([(1,) * len(shape), *(sizes[slot] for slot in each.slots)])
        assert covered is not None
        if each.dimensions is None:
            if broadcast([sizes[slot] for slot in each.slots]) != shape:
                return None
        elif any(covered[d] != shape[d] for d in each.dimensions):
            return None
    return shape


def result_shape(level: Level, result: int, shape: Sizes) -> Sizes:
    """The shape of a result that is no gradient."""
    form = level.result_form(result)
    if level.rows is None or form is Form.FULL:
        return shape
    rows = {d + len(shape) for d in level.rows.dimensions}
    if form is Form.KEPT:
        return tuple(1 if d in rows else size for d, size in enumerate(shape))
    return tuple(size for d, size in enumerate(shape) if d not in rows)


def _strides(results: Sequence[torch.Tensor], compiler: Compiler, arguments: Arguments) -> list[Sizes]:
    """The strides of results of a call's sizes."""
    tensors = [tensor for tensor in arguments.tensors if tensor is not None]
    if not compiler.rows:
        return [result_strides(tuple(result.shape), tensors) for result in results]
    level = compiler.level(arguments)
    shape = None if level is None else full_shape(level, arguments.tensors)
    if level is None or shape is None:
        return [_dense_strides(tuple(r.shape), range(r.dim() - 1, -1, -1), r.dim()) for r in results]
    aligned = [_aligned(level, slot, t) for slot, t in enumerate(arguments.tensors) if t is not None]
    assert level.rows is not None
    order = row_order(shape, [t for t in aligned if broadcast([shape, tuple(t.shape)]) == shape], level.rows.dimensions)
    rows = {d + len(shape) for d in level.rows.dimensions}
    kept = [d for d in range(len(shape)) if d not in rows]
    found = []
    for number, result in enumerate(results):
        squeezed = level.result_form(number) is Form.SQUEEZED
        own = [kept.index(d) for d in order if d not in rows] if squeezed else order
        found.append(_dense_strides(tuple(result.shape), own, len(own)))
    return found


def result_strides(sizes: Sizes, tensors: Sequence[torch.Tensor]) -> Sizes:
    """The strides of a new result of a pointwise call of these sizes, computed from these tensors."""
    shape = broadcast([tuple(tensor.shape) for tensor in tensors]) or sizes
    relevant = [tensor for tensor in tensors if broadcast([shape, tuple(tensor.shape)]) == shape]
    return _dense_strides(sizes, _order(shape, relevant), len(shape))


def row_order(shape: Sizes, tensors: Sequence[torch.Tensor], rows: Sequence[int]) -> Sequence[int]:
    """The dimensions of a row program's shape from the innermost to the outermost: the rows contiguous where they are
    the last dimensions, the others in the inputs' order."""
    order = _order(shape, tensors)
    if list(rows) != list(range(-len(rows), 0)):
        return order
    innermost = [d + len(shape) for d in reversed(rows)]
    return [*innermost, *(d for d in order if d not in innermost)]


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
