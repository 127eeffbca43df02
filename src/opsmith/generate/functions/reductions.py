"""Functions of a row: reductions, functions composed of them, and calls that add or remove dimensions of size one.

A reduction computes one value from all elements of a row. The others are defined by reductions. If one has a
derivative of its own, that is in terms of its value, which may be saved instead of the input.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .core import Call, Value, define, find, of, primitive, translates

define("row_sum", lambda g, x, y: (g,), reduces=True)


def _shared_by_ties(g: Value, x: Value, y: Value) -> tuple[Value]:
    ties = x.equals(y).where(x.builder.constant(1, x.dtype), 0)
    return (g * ties / of("row_sum", ties),)


define("row_max", _shared_by_ties, reduces=True)
define("row_min", _shared_by_ties, reduces=True)
define("row_any", reduces=True)
define("row_all", reduces=True)


def _to_one(g: Value, x: Value, index: Value, y: Value) -> tuple[Value, None]:
    column = x.builder.value(x.builder.interner.column())
    return column.equals(index).where(g, 0), None


define("row_at", _to_one, reduces=True)
define("row_max_at", _to_one, expand=lambda x, index: of("row_max", x), reduces=True)
define("row_min_at", _to_one, expand=lambda x, index: of("row_min", x), reduces=True)


def _dimensions(call: Call, x: Value, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == ():
        call.shapes.counts_from_the_first = True
        return tuple(range(-len(x.place), 0))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _count(call: Call, x: Value, dimensions: tuple[int, ...], dtype: torch.dtype) -> Value:
    """The elements of a row."""
    sizes = [call.size(x, dimension) for dimension in dimensions]
    product = sizes[0]
    for size in sizes[1:]:
        product = product * size
    return product.to(dtype)


def _reduces(call: Call, x: Value, dim: Any, keepdim: bool) -> tuple[int, ...]:
    """Enters the place of the result; returns the dimensions."""
    dimensions = _dimensions(call, x, dim)
    call.place = call.shapes.reduce(x.place, dimensions, keepdim, call.builder.line)
    return dimensions


@translates("sum", rows=True)
def row_sum(call: Call, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    _reduces(call, input, dim, keepdim)
    return of("row_sum", call.operand(input))


@translates("mean", rows=True)
def mean(call: Call, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    dimensions = _reduces(call, input, dim, keepdim)
    return of("row_sum", call.operand(input)) / _count(call, input, dimensions, call.dtype)


def _extremum(name: str) -> None:
    @translates(f"a{name}", rows=True)
    def of_row(call: Call, input: Any, dim: Any = None, keepdim: bool = False) -> Value:
        _reduces(call, input, dim, keepdim)
        return _of_row(call, input)

    def _of_row(call: Call, input: Any) -> Value:
        if call.dtype is torch.bool:
            return of("row_any" if name == "max" else "row_all", call.operand(input))
        return of(f"row_{name}", call.operand(input))

    def at(call: Call, x: Value, row: Value) -> Value:
        """The first index of the extremum; of a NaN, if there is one."""
        column = call.column()
        end = call.size(x, call.dimension)
        there = x.equals(row)
        if x.dtype.is_floating_point:
            there = there | x.builder.test("is_nan", x)
        return of("row_min", there.where(column, end))

    @translates(name, rows=True)
    def pair(call: Call, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Value):
            entry = find(f"{name}imum")
            assert entry is not None
            return entry[1](call, input, dim)
        if dim is None:
            return of_row(call, input)
        _reduces(call, input, dim, keepdim)
        call.dimension = dim
        x = call.own(input)
        x = Value(call.builder, x.node, None, input.place)
        index = at(call, x, of(f"row_{name}", x))
        return call.builder.call(primitive(f"row_{name}_at"), [x, index], x.dtype), index

    @translates(f"arg{name}", rows=True)
    def index(call: Call, input: Any, dim: Any = None, keepdim: bool = False) -> Value:
        if dim is None and len(input.place) != 1:
            raise TypeError("name the dimension")
        call.dimension = -1 if dim is None else dim
        _reduces(call, input, call.dimension, keepdim)
        x = call.own(input)
        x = Value(call.builder, x.node, None, input.place)
        return at(call, x, of(f"row_{name}", x))


_extremum("max")
_extremum("min")


def _truth(torch_name: str) -> None:
    @translates(torch_name, rows=True)
    def build(call: Call, input: Any, dim: Any = None, keepdim: bool = False) -> Value:
        _reduces(call, input, dim, keepdim)
        return call.result(of(f"row_{torch_name}", call.truth(input)))


_truth("any")
_truth("all")


# --- spread: by two passes, never as E[x^2] - E[x]^2 ------------------------------------------------------------------


def _variance(x: Value, count: Value, divisor: Value) -> Value:
    centred = x - of("row_sum", x) / count
    return of("row_sum", centred * centred) / divisor


define(
    "variance",
    lambda g, x, count, divisor, y: (g * (2 / divisor) * (x - of("row_sum", x) / count), None, None),
    expand=_variance,
    reduces=True,
)
define("root_of_variance", lambda g, x, y: (y.equals(0).where(0, g / (2 * y)),), expand=lambda x: of("sqrt", x))


def _spread(call: Call, input: Any, dim: Any, unbiased: Any, keepdim: bool, correction: Any) -> Value:
    if isinstance(dim, bool):  # x.var(unbiased)
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = int(unbiased)
    dimensions = _reduces(call, input, dim, keepdim)
    count = _count(call, input, dimensions, call.dtype)
    left = count - call.operand(1 if correction is None else correction)
    return of("variance", call.operand(input), count, of("maximum", left, 0))


@translates("var", rows=True)
def var(
    call: Call, input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Value:
    return _spread(call, input, dim, unbiased, keepdim, correction)


@translates("std", rows=True)
def std(
    call: Call, input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Value:
    return of("root_of_variance", _spread(call, input, dim, unbiased, keepdim, correction))


# --- norms ------------------------------------------------------------------------------------------------------------

define(
    "row_norm",
    lambda g, x, y: (g * y.equals(0).where(0, x / y),),
    expand=lambda x: of("sqrt", of("row_sum", x * x)),
    reduces=True,
)


def _shared_by_largest(g: Value, x: Value, y: Value) -> tuple[Value]:
    """NaN is the largest, and elements that are NaN share the gradient, as in torch."""
    size = of("absolute", x)
    one = x.builder.constant(1, x.dtype)
    ties = (size.equals(y) | x.builder.test("is_nan", x)).where(one, 0)
    return (of("sign", x) * (g / of("row_sum", ties) * ties),)


define("row_most", _shared_by_largest, expand=lambda x: of("row_max", of("absolute", x)), reduces=True)
define("row_least", _shared_by_largest, expand=lambda x: of("row_min", of("absolute", x)), reduces=True)


def _norm(x: Value, order: Any) -> Value:
    if order == 2:
        return of("row_norm", x)
    if order == 1:
        return of("row_sum", of("absolute", x))
    if order in (math.inf, -math.inf):
        return of("row_most" if order > 0 else "row_least", x)
    raise TypeError(f"a norm of order {order} is not supported; 1, 2 and infinity are")


@translates("norm", rows=True)
def norm(
    call: Call, input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Value:
    _reduces(call, input, dim, keepdim)
    return _norm(call.operand(input), 2 if p in ("fro", None) else p)


@translates("vector_norm", rows=True)
def vector_norm(
    call: Call, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    _reduces(call, x, dim, keepdim)
    return _norm(call.operand(x), ord)


@translates("normalize", rows=True)
def normalize(call: Call, input: Any, p: Any = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Value:
    _reduces(call, input, dim, True)
    call.place = call.shapes.broadcast([call.place, input.place])
    x = call.operand(input)
    return x / of("clamp_min", _norm(x, p), call.operand(eps))


# --- softmax and its kind ---------------------------------------------------------------------------------------------


def _highest(x: Value) -> Value:
    """What is subtracted before exponentials; the results do not depend on it."""
    return of("detach", of("row_max", x))


def _softmax(x: Value) -> Value:
    e = of("exp", x - _highest(x))
    return e / of("row_sum", e)


def _log_softmax(x: Value) -> Value:
    shifted = x - _highest(x)
    return shifted - of("log", of("row_sum", of("exp", shifted)))


def _logsumexp(x: Value) -> Value:
    highest = _highest(x)
    shift = x.builder.test("is_inf", highest).where(0, highest)
    return of("log", of("row_sum", of("exp", x - shift))) + shift


define("softmax", lambda g, x, y: (g * y - y * of("row_sum", g * y),), expand=_softmax)
define("log_softmax", lambda g, x, y: (g - of("exp", y) * of("row_sum", g),), expand=_log_softmax)
define("logsumexp", lambda g, x, y: (g * of("exp", x - y),), expand=_logsumexp, reduces=True)


def _along_rows(name: str, *torch_names: str, negated: bool = False) -> None:
    @translates(*torch_names, rows=True)
    def build(call: Call, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
        if dim is None:
            raise TypeError("name the dimension")
        _reduces(call, input, dim, True)
        call.place = call.shapes.broadcast([call.place, input.place])
        x = call.operand(input)
        return of(name, -x if negated else x)


_along_rows("softmax", "softmax")
_along_rows("softmax", "softmin", negated=True)
_along_rows("log_softmax", "log_softmax")


@translates("logsumexp", rows=True)
def logsumexp(call: Call, input: Any, dim: Any, keepdim: bool = False) -> Value:
    _reduces(call, input, dim, keepdim)
    return of("logsumexp", call.operand(input))


# --- norms of torch.nn.functional -------------------------------------------------------------------------------------


def _last(call: Call, input: Any, normalized_shape: Any) -> tuple[int, ...]:
    shape = getattr(normalized_shape, "example", normalized_shape)
    if isinstance(shape, torch.Size):  # x.shape, of every dimension
        call.shapes.counts_from_the_first = True
    return tuple(range(-(len(shape) if isinstance(shape, (tuple, list)) else 1), 0))


def _affine(call: Call, normal: Value, weight: Any, bias: Any, input: Any) -> Value:
    call.place = call.shapes.broadcast([call.place, *(v.place for v in (input, weight, bias) if v is not None)])
    scaled = normal if weight is None else normal * call.operand(weight)
    return scaled if bias is None else scaled + call.operand(bias)


@translates("layer_norm", rows=True)
def layer_norm(
    call: Call, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-05,
    cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    dimensions = _reduces(call, input, _last(call, input, normalized_shape), True)
    x, count = call.operand(input), _count(call, input, dimensions, call.dtype)
    variance = of("variance", x, count, count)
    normal = (x - of("row_sum", x) / count) * of("rsqrt", variance + call.operand(eps))
    return _affine(call, normal, weight, bias, input)


@translates("rms_norm", rows=True)
def rms_norm(call: Call, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Value:
    dimensions = _reduces(call, input, _last(call, input, normalized_shape), True)
    x, count = call.operand(input), _count(call, input, dimensions, call.dtype)
    epsilon = torch.finfo(call.result_dtype).eps if eps is None else eps
    return _affine(call, x * of("rsqrt", of("row_sum", x * x) / count + call.operand(epsilon)), weight, None, input)


# --- between the row and the element ----------------------------------------------------------------------------------


@translates("unsqueeze", rows=True)
def unsqueeze(call: Call, input: Any, dim: int) -> Value:
    call.place = call.shapes.unsqueeze(input.place, dim)
    return call.own(input)


@translates("squeeze", rows=True)
def squeeze(call: Call, input: Any, dim: int) -> Value:
    call.place = call.shapes.squeeze(input.place, dim)
    return call.own(input)


@translates("getitem", rows=True)
def getitem(call: Call, input: Any, index: Any) -> Value:
    """With None and `...`, and with 0 or -1 where the size is one."""
    place, items = input.place, index if isinstance(index, tuple) else (index,)
    if Ellipsis not in items:
        items = (*items, Ellipsis)
    after = items[items.index(Ellipsis) + 1 :]
    position = 0
    for item in items[: items.index(Ellipsis)]:
        place, position = _indexed(call, place, item, position)
    position = len(place) - sum(item is not None for item in after)
    for item in after:
        place, position = _indexed(call, place, item, position)
    call.place = place
    return call.own(input)


def _indexed(call: Call, place: Any, item: Any, position: int) -> tuple[Any, int]:
    if item is None:
        call.shapes.counts_from_the_first |= position != len(place)
        return call.shapes.unsqueeze(place, position - len(place) - 1), position + 1
    if isinstance(item, slice) and item == slice(None):
        return place, position + 1
    if item in (0, -1):
        return call.shapes.squeeze(place, position - len(place)), position
    raise TypeError("an index selects elements; None, `...`, and 0 where the size is one, are supported")


@translates("gather", rows=True)
def gather(call: Call, input: Any, dim: int, index: Any) -> Value:
    return call.gathered(input, dim, index)


@translates("arange", rows=True)
def arange(call: Call, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Value:
    if len(args) != 1 or kwargs or not isinstance(args[0], Value):
        raise TypeError("only torch.arange(x.shape[-1], device=x.device) is supported: the numbers of the columns")
    return call.columns(args[0])
