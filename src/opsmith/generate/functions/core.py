"""Function, the builder for formulas, and the table of functions."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ...errors import SourceLine
from ..expression import Constant, Interner, Node, Scalar
from ..text import HALF, SCALAR_TYPES, computed_in, reserve


@dataclass(frozen=True, eq=False)
class Function:
    """A function of elements.

    In C++ it is `infix` or a call of `name`; or `expand` defines it by other functions, after differentiation.
    `derivative` takes the gradient of the value, the arguments and the value, and returns the gradient of each
    argument. It is torch's own formula, so that kinks, ties and infinities give torch's results. `reduces`: one value
    from all elements of a row."""

    name: str
    derivative: Callable[..., Any] | None = None
    infix: str | None = None
    expand: Callable[..., Value] | None = None
    reduces: bool = False

    def text(self, args: Sequence[str], node: Node) -> str:
        if self.infix is not None:
            return self.infix.format(*args)
        return f"{self.name}({', '.join(args)})"


class _Cast(Function):
    """A value in another dtype."""

    def text(self, args: Sequence[str], node: Node) -> str:
        return f"cast<{SCALAR_TYPES[computed_in(node.dtype)]}>({args[0]})"


CAST = _Cast("cast", lambda g, x, y: (g.to(x.dtype) if x.dtype.is_floating_point else None,))


def _operator(name: str) -> Callable[[Value, Any], Value]:
    return lambda value, other: value.builder.apply(name, value, other)


def _reflected(name: str) -> Callable[[Value, Any], Value]:
    return lambda value, other: value.builder.apply(name, other, value)


def _comparison(name: str) -> Callable[[Value, Any], Value]:
    return lambda value, other: value.builder.compare(name, value, other)


class Value:
    """A node with the operators of Python, for formulas."""

    __slots__ = ("builder", "example", "node", "place")

    def __init__(self, builder: Builder, node: Node, example: Any = None, place: Any = None) -> None:
        self.builder = builder
        self.node = node
        self.example = example  # torch's own result on a small tensor, while tracing
        self.place = place  # its dimensions among those of a row program (rows.dimensions), while tracing

    @property
    def dtype(self) -> torch.dtype:
        return self.node.dtype

    def to(self, dtype: torch.dtype) -> Value:
        return self.builder.cast(self, dtype)

    def number(self) -> float | int | bool | None:
        """Its value, if it is a constant."""
        return self.node.value if isinstance(self.node, Constant) else None

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __lt__, __le__ = _comparison("less"), _comparison("less_equal")
    __gt__, __ge__ = _comparison("greater"), _comparison("greater_equal")
    equals = _comparison("equal")
    __and__, __or__ = _operator("logical_and"), _operator("logical_or")

    def __neg__(self) -> Value:
        return of("neg", self)

    def __invert__(self) -> Value:
        return of("logical_not", self)

    def where(self, yes: Any, no: Any) -> Value:
        """`yes` where this condition holds, else `no`."""
        return self.builder.select(self, yes, no)


class Builder:
    """Makes values. `line`: the author's line that they come from."""

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self.line: SourceLine | None = None

    def value(self, node: Node) -> Value:
        return Value(self, node)

    def constant(self, number: float | int | bool, dtype: torch.dtype) -> Value:
        return Value(self, self.interner.constant(number, dtype))

    def like(self, value: Any, model: Value) -> Value:
        return value if isinstance(value, Value) else self.constant(value, model.dtype)

    def converted(self, value: Any, dtype: torch.dtype) -> Value:
        """A value or a number in a dtype."""
        return self.cast(value, dtype) if isinstance(value, Value) else self.constant(value, dtype)

    def call(self, function: Function, args: Sequence[Value], dtype: torch.dtype) -> Value:
        return Value(self, self.interner.call(function, [arg.node for arg in args], dtype, self.line))

    def apply(self, name: str, *args: Any) -> Value:
        """A function whose value has the dtype of its arguments; numbers are converted to it."""
        model = next(arg for arg in args if isinstance(arg, Value))
        values = [self.like(arg, model) for arg in args]
        assert all(value.dtype == model.dtype for value in values), (name, [value.dtype for value in values])
        simple = _simplified(name, values)
        return simple if simple is not None else self.call(primitive(name), values, model.dtype)

    def compare(self, name: str, left: Any, right: Any) -> Value:
        model = left if isinstance(left, Value) else right
        values = [self.like(left, model), self.like(right, model)]
        assert values[0].dtype == values[1].dtype
        return self.call(primitive(name), values, torch.bool)

    def test(self, name: str, value: Value) -> Value:
        return self.call(primitive(name), [value], torch.bool)

    def select(self, condition: Value, yes: Any, no: Any) -> Value:
        model = yes if isinstance(yes, Value) else no
        values = [self.like(yes, model), self.like(no, model)]
        assert condition.dtype is torch.bool and values[0].dtype == values[1].dtype
        return self.call(primitive("select"), [condition, *values], model.dtype)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        if value.dtype == dtype:
            return value
        node = value.node
        if isinstance(node, Constant) and dtype not in HALF:
            if not dtype.is_floating_point and not (math.isfinite(node.value) and abs(node.value) < 2**63):
                return self.call(CAST, [value], dtype)  # C++ converts infinity to an integer
            return self.constant(node.value, dtype)
        return self.call(CAST, [value], dtype)


def _simplified(name: str, values: list[Value]) -> Value | None:
    """Times one and divided by one, which are exact for every value."""
    if name in ("mul", "div") and isinstance(values[1].node, Constant) and values[1].node.value == 1:
        return values[0]
    if name == "mul" and isinstance(values[0].node, Constant) and values[0].node.value == 1:
        return values[1]
    return None


class Call:
    """One call of torch, to be translated. `dtype`: what it computes in; `result_dtype`: of the result."""

    def __init__(self, builder: Builder, result_dtype: torch.dtype, shapes: Any = None) -> None:
        self.builder = builder
        self.result_dtype = result_dtype
        self.shapes = shapes  # rows.dimensions.Dimensions, in a row program
        self.place: Any = None  # of the result, if it is not what its arguments broadcast to
        self.dimension = -1
        self.dtype = computed_in(result_dtype)

    def operand(self, value: Any) -> Value:
        return self.builder.converted(value, self.dtype)

    def operands(self, *values: Any) -> list[Value]:
        return [self.operand(value) for value in values]

    def common(self, *values: Any) -> list[Value]:
        """Operands of a comparison, in the dtype that torch compares them in."""
        examples = [value.example if isinstance(value, Value) else value for value in values]
        dtype = computed_in(torch.result_type(*examples))
        return [self.builder.converted(value, dtype) for value in values]

    def own(self, value: Any) -> Value:
        """In its own dtype."""
        return self.builder.converted(value, computed_in(value.dtype))

    def truth(self, value: Any) -> Value:
        return self.builder.converted(value, torch.bool)

    def result(self, value: Any) -> Value:
        return self.builder.converted(value, self.result_dtype)

    # --- in a row program

    def size(self, value: Value, dimension: int) -> Value:
        """The size of one of the value's dimensions, an int64."""
        return self.builder.value(self.shapes.size(self.builder.interner, value.place, dimension))

    def column(self) -> Value:
        return self.builder.value(self.builder.interner.column())

    def columns(self, size: Value) -> Value:
        """The column's number, for a size that the program asked for."""
        self.place = self.shapes.columns(size.node)
        return self.result(self.column())

    def gathered(self, value: Value, dimension: int, index: Value) -> Value:
        """The element of each row at an index."""
        self.place = self.shapes.gather(value.place, dimension, index.place, self.builder.line)
        at = index.to(torch.int64)
        self.shapes.checks += [(at >= 0).node, (at < self.size(value, dimension)).node]
        return self.builder.call(primitive("row_at"), [self.own(value), at], self.own(value).dtype)


# --- the table ------------------------------------------------------------------------------------------------


_primitives: dict[str, Function] = {}
_translations: dict[str, Callable[..., Value]] = {}
"""How calls of torch become expressions: `build(call, *args, **kwargs)`, with torch's argument names."""
_aliases: dict[str, str] = {}
_of_rows: set[str] = set()
"""Those that only row programs may call."""


def primitive(name: str) -> Function:
    return _primitives[name]


def define(
    name: str,
    derivative: Callable[..., Any] | None = None,
    *,
    infix: str | None = None,
    expand: Callable[..., Value] | None = None,
    call: Callable[..., tuple[Any, ...]] | None = None,
    names: Sequence[str] = (),
    reduces: bool = False,
) -> None:
    """Enters a function of expressions. With `call`, torch's functions of these `names` (default: the same name) become
    it: `call` has their signature and returns the operands."""
    _primitives[name] = Function(name, derivative, infix, expand, reduces)
    reserve(name)
    if call is not None:
        formula(*(names or (name,)), call=call, by=lambda *operands: of(name, *operands))


def formula(*torch_names: str, by: Callable[..., Value], call: Callable[..., tuple[Any, ...]] | None = None) -> None:
    """Enters torch's functions of these names as a formula of others: `by` takes the operands that `call` returns, by
    default the one tensor."""
    operands = call or (lambda input, inplace=False: (input,))
    operands.__qualname__ = torch_names[0]  # for the message of a TypeError

    @translates(*torch_names)
    def build(translated: Call, *args: Any, **kwargs: Any) -> Value:
        return by(*translated.operands(*operands(*args, **kwargs)))


def unary(name: str, derivative: Callable[..., Any], **more: Any) -> None:
    """Enters a function of one tensor, as `define` does."""
    define(name, derivative, call=lambda input, inplace=False: (input,), **more)


def binary(name: str, derivative: Callable[..., Any], **more: Any) -> None:
    """Enters a function of two tensors, as `define` does."""
    define(name, derivative, call=lambda input, other: (input, other), **more)


Build = TypeVar("Build", bound=Callable[..., Any])


def translates(*torch_names: str, rows: bool = False) -> Callable[[Build], Build]:
    """Enters what torch's functions of these names become; names after the first are aliases. Names are looked up in
    torch, torch.special, torch.linalg, torch.nn.functional, Tensor's methods and `operator`. `rows`: only row programs
    may call them."""

    def enter(build: Build) -> Build:
        _translations[torch_names[0]] = build
        if rows:
            _of_rows.add(torch_names[0])
        for alias in torch_names:
            _aliases[alias] = torch_names[0]
        return build

    return enter


@functools.cache
def _table() -> tuple[dict[Any, str], dict[str, str]]:
    """Names in the table, by function and by method name; the in-place form ends in '_'."""
    namespaces: list[Any] = [torch, torch.special, torch.linalg, torch.nn.functional, torch._C._nn]
    functions: dict[Any, str] = {}
    methods: dict[str, str] = {}
    for alias, name in _aliases.items():
        for namespace in namespaces:
            for suffix in ("", "_"):
                function = getattr(namespace, alias + suffix, None)
                if callable(function):
                    functions[function] = name + suffix
        for suffix in ("", "_"):
            if hasattr(torch.Tensor, alias + suffix):
                methods[alias + suffix] = name + suffix
    for python_name, name in _PYTHON_OPERATORS.items():
        functions[getattr(operator, python_name)] = name
        inplace = getattr(operator, f"i{python_name.strip('_')}", None)
        if inplace is not None:
            functions[inplace] = f"{name}_"
    functions[operator.getitem] = "getitem"
    functions[abs] = functions[operator.abs] = "abs"
    methods["where"] = "tensor.where"  # whose condition is not its first argument
    return functions, methods


_PYTHON_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "neg": "neg", "pos": "positive", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor",
    "invert": "bitwise_not", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
    "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
}  # fmt: skip


def find(target: Any) -> tuple[str, Callable[..., Value], bool] | None:
    """(name, translation, whether it works in place) of a function, or a method's name, that torch.fx recorded."""
    functions, methods = _table()
    if isinstance(target, str):
        name = methods.get(target)
    else:
        try:
            name = functions.get(target)
        except TypeError:
            return None
    if name is None:
        return None
    own = name if name in _translations else name.removesuffix("_")
    return own, _translations[own], name.endswith("_")


def of_rows(target: Any) -> bool:
    """Whether only row programs may call a function."""
    entry = find(target)
    return target == "size" or (entry is not None and entry[0] in _of_rows)


def names(rows: bool = False) -> list[str]:
    """Every elementwise function of torch in the table, by its own name; or those of rows."""
    _table()
    return sorted(_of_rows if rows else _translations.keys() - _of_rows)


def is_uniform(value: Any) -> bool:
    """Whether a value is a number or an argument, not an element."""
    return not isinstance(value, Value) or isinstance(value.node, (Constant, Scalar))


def of(name: str, *args: Any) -> Value:
    """A function of values and numbers, for formulas: of("exp", x)."""
    builder = next(arg.builder for arg in args if isinstance(arg, Value))
    return builder.apply(name, *args)
