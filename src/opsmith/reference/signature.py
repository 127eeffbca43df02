"""The signature of an operator: from a reference's annotations to a schema, and how calls are bound to it."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..errors import InvalidNameError, SignatureError


class Kind(enum.Enum):
    """How an argument or a result takes part in autograd."""

    TENSOR = "Tensor"
    OPTIONAL_TENSOR = "Tensor?"
    TENSOR_LIST = "Tensor[]"
    OPTIONAL_TENSOR_LIST = "Tensor?[]"
    VALUE = "value"


KINDS = {kind.value: kind for kind in Kind if kind is not Kind.VALUE}

# Integers are SymInt, so that torch.compile keeps a dynamic size symbolic on its way into the op.
_SCALARS: dict[Any, str] = {
    torch.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    torch.dtype: "ScalarType",
    torch.device: "Device",
    torch.types.Number: "Scalar",
}
_IN_LISTS = (torch.Tensor, int, float, bool, str)
EMPTY_CELL = types.CellType()
ACCEPTED = "Tensor, int, float, bool, str, torch.dtype, torch.device, each also Optional; list[...] of the first five"


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    kind: Kind
    default: Any = inspect.Parameter.empty
    keyword_only: bool = False
    mutated: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.kind is not Kind.VALUE

    @property
    def has_default(self) -> bool:
        return self.default is not inspect.Parameter.empty

    def positional(self) -> Argument:
        return replace(self, default=inspect.Parameter.empty, keyword_only=False)

    def __str__(self) -> str:
        text = f"{self.type} {self.name}"
        if self.mutated:
            text = text.replace("Tensor", f"Tensor({self.name}!)", 1)
        return f"{text}={_default_text(self.default)}" if self.has_default else text


@dataclass(frozen=True)
class Signature:
    """The arguments and results of one operator. `results` holds one Kind per result: TENSOR, or a single
    TENSOR_LIST."""

    arguments: tuple[Argument, ...]
    results: tuple[Kind, ...]
    tensor_positions: tuple[int, ...] | None = field(init=False, compare=False)
    returns_list: bool = field(init=False, compare=False)
    mutated: tuple[Argument, ...] = field(init=False, compare=False)
    tensors: tuple[Argument, ...] = field(init=False, compare=False)
    _positional: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Read on every call of the Python tier, so computed once. The positions are None where a list makes them
        # depend on the call.
        lists = any(argument.kind in (Kind.TENSOR_LIST, Kind.OPTIONAL_TENSOR_LIST) for argument in self.arguments)
        positions = tuple(index for index, argument in enumerate(self.arguments) if argument.is_tensor)
        object.__setattr__(self, "tensor_positions", None if lists else positions)
        object.__setattr__(self, "returns_list", self.results == (Kind.TENSOR_LIST,))
        object.__setattr__(self, "mutated", tuple(argument for argument in self.arguments if argument.mutated))
        object.__setattr__(self, "tensors", tuple(argument for argument in self.arguments if argument.is_tensor))
        object.__setattr__(self, "_positional", sum(not argument.keyword_only for argument in self.arguments))

    def flatten(self, values: Sequence[Any]) -> list[Any]:
        """The tensors among `values` (see the function `flatten`), with a fast path."""
        positions = self.tensor_positions
        if positions is None:
            return flatten(self.arguments, values)
        return [values[position] for position in positions]

    def unflatten(self, values: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        positions = self.tensor_positions
        if positions is None:
            return unflatten(self.arguments, values, tensors)
        filled = list(values)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        return filled

    def without_tensors(self, values: Sequence[Any]) -> Sequence[Any]:
        """`values` with None for each tensor, for unflatten to fill again. Keeps no memory alive."""
        positions = self.tensor_positions
        if positions is None:
            return unflatten(self.arguments, values, [None] * len(flatten(self.arguments, values)))
        if len(positions) == len(values):
            return (None,) * len(values)
        return [None if position in positions else value for position, value in enumerate(values)]

    def named_tensors(self, values: Sequence[Any]) -> list[tuple[Argument, Any]]:
        """Each flattened tensor with its argument."""
        if self.tensor_positions is not None:
            return [(self.arguments[position], values[position]) for position in self.tensor_positions]
        pairs = zip(self.arguments, values, strict=True)
        return [(argument, tensor) for argument, value in pairs for tensor in flatten([argument], [value])]

    def shown(self, values: Sequence[Any]) -> str:
        """'x float32 [4, 8], bias float32 [8]': the tensors of a call."""
        found = []
        for argument, tensor in self.named_tensors(values):
            if tensor is not None:
                strides = "" if tensor.is_contiguous() else f" with strides {list(tensor.stride())}"
                dtype = str(tensor.dtype).removeprefix("torch.")
                found.append(f"{argument.name} {dtype} {list(tensor.shape)}{strides}")
        return ", ".join(found)

    def arranged(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """All arguments in schema order as (positional, keyword-only)."""
        if self._positional == len(self.arguments):
            return list(values), {}
        keywords = (argument.name for argument in self.arguments[self._positional :])
        return list(values[: self._positional]), dict(zip(keywords, values[self._positional :], strict=True))

    def changed(self, values: Sequence[Any]) -> Any:
        """What calling an in-place op returns: the tensor that it changes, or a tuple of them."""
        changed = tuple(v for argument, v in zip(self.arguments, values, strict=True) if argument.mutated)
        return changed[0] if len(changed) == 1 else changed

    def schema(self, operator_name: str) -> str:
        parts: list[str] = []
        for argument in self.arguments:
            if argument.keyword_only and "*" not in parts:
                parts.append("*")
            parts.append(str(argument))
        results = [kind.value for kind in self.results]
        returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"{operator_name}({', '.join(parts)}) -> {returned}"

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names by which a backward kernel refers to the forward's results."""
        if self.returns_list:
            return ("outputs",)
        count = len(self.results)
        return ("output",) if count == 1 else tuple(f"output_{index}" for index in range(count))

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every argument in order, with the defaults the dispatcher left out filled in."""
        if len(args) == len(self.arguments):
            return tuple(args)
        rest = self.arguments[len(args) :]
        return (*args, *[kwargs.get(argument.name, argument.default) for argument in rest])

    def bind_call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The same for a call that did not come through the dispatcher. Raises TypeError if it does not fit."""
        names = [argument.name for argument in self.arguments]
        unknown, twice = set(kwargs) - set(names), set(kwargs) & set(names[: len(args)])
        missing = [a.name for a in self.arguments[len(args) :] if a.name not in kwargs and not a.has_default]
        if len(args) > self._positional or unknown or twice or missing:
            raise TypeError("the arguments do not fit the signature")
        return self.bind(args, kwargs)

    def positional(self) -> Signature:
        """The same with every argument positional and required: how a kernel is called."""
        return Signature(tuple(argument.positional() for argument in self.arguments), self.results)

    def functional(self) -> Signature:
        """The signature of the functional form of an in-place op: the mutated arguments become its results."""
        arguments = tuple(replace(argument, mutated=False) for argument in self.arguments)
        return Signature(arguments, (Kind.TENSOR,) * len(self.mutated))

    def out_variant(self) -> Signature:
        names = ("out",) if len(self.results) == 1 else tuple(f"out_{i}" for i in range(len(self.results)))
        outs = tuple(Argument(name, "Tensor", Kind.TENSOR, keyword_only=True, mutated=True) for name in names)
        return Signature(self.arguments + outs, ())

    def backward(self) -> Signature:
        """The signature of the op's backward: gradients of the results, all arguments, the results that a kernel may
        need, and a flag for each tensor (each element of a list) whose gradient is requested. It returns the requested
        gradients and nothing else, so no transform ever meets an undefined tensor."""
        taken = {argument.name for argument in self.arguments}
        kind = Kind.OPTIONAL_TENSOR_LIST if self.returns_list else Kind.OPTIONAL_TENSOR
        grad_names = ["grads"] if self.returns_list else [f"grad_{name}" for name in self.result_names]
        grads = [Argument(_unused(name, taken), kind.value, kind) for name in grad_names]
        results = [Argument(_unused(name, taken), kind.value, kind) for name in self.result_names]
        needs = Argument(_unused("needs", taken), "bool[]", Kind.VALUE)
        return Signature((*grads, *self.positional().arguments, *results, needs), (Kind.TENSOR_LIST,))


def flatten(arguments: Iterable[Argument], values: Iterable[Any]) -> list[torch.Tensor | None]:
    """The tensors among `values`, in order; a list gives one entry per element, an absent optional tensor gives
    None."""
    tensors: list[torch.Tensor | None] = []
    for argument, value in zip(arguments, values, strict=True):
        if argument.kind is Kind.VALUE:
            continue
        if argument.kind in (Kind.TENSOR, Kind.OPTIONAL_TENSOR):
            tensors.append(value)
        else:
            tensors.extend(value)
    return tensors


def unflatten(arguments: Iterable[Argument], values: Iterable[Any], tensors: Iterable[Any]) -> list[Any]:
    """`values` with its tensors replaced, in the order flatten gives them."""
    replacements = iter(tensors)
    filled: list[Any] = []
    for argument, value in zip(arguments, values, strict=True):
        if argument.kind is Kind.VALUE:
            filled.append(value)
        elif argument.kind in (Kind.TENSOR, Kind.OPTIONAL_TENSOR):
            filled.append(next(replacements))
        else:
            filled.append([next(replacements) for _ in value])
    return filled


_FITTING: dict[str, tuple[type, ...]] = {
    "Tensor": (torch.Tensor,),
    "SymInt": (int, torch.SymInt),
    "float": (float, int, torch.SymFloat, torch.SymInt),
    "bool": (bool, torch.SymBool),
    "str": (str,),
    "ScalarType": (torch.dtype,),
    "Device": (torch.device, str),
    "Scalar": (int, float, bool, complex),
}


def fits(type_text: str, value: Any) -> bool:
    """Whether the dispatcher accepts a Python value for a schema type."""
    if type_text.endswith("?"):
        return value is None or fits(type_text[:-1], value)
    if type_text.endswith("[]"):
        return isinstance(value, (list, tuple)) and all(fits(type_text[:-2], item) for item in value)
    return isinstance(value, _FITTING[type_text])


def schema_type(type: object) -> str:
    """'Tensor?[]' for torch's name of a schema's type, 'List[Optional[Tensor]]'."""
    name = str(type)
    if inner := re.fullmatch(r"Optional\[(.*)\]", name):
        return f"{schema_type(inner[1])}?"
    if inner := re.fullmatch(r"List\[(.*)\]", name):
        return f"{schema_type(inner[1])}[]"
    return "Scalar" if name == "number" else name


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*::[A-Za-z_][A-Za-z0-9_]*")


def split_name(name: object) -> tuple[str, str]:
    """'mylib::mish' -> ('mylib', 'mish')."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidNameError(name)
    namespace, _, base = name.partition("::")
    return namespace, base


def infer(function: Callable[..., Any], name: str, mutates_args: Sequence[str] = ()) -> Signature:
    """The signature that a reference's annotations declare."""
    wrong = functools.partial(SignatureError, name, function)
    try:
        hints = typing.get_type_hints(function, localns=closed_over(function))
    except Exception as error:
        raise wrong(f"its annotations cannot be read: {error}") from error
    if isinstance(mutates_args, str):
        raise wrong(f'mutates_args takes names in a tuple: mutates_args=("{mutates_args}",)')

    arguments = [
        _argument(wrong, parameter, hints, parameter.name in mutates_args)
        for parameter in inspect.signature(function).parameters.values()
    ]
    for unknown in sorted(set(mutates_args) - {argument.name for argument in arguments}):
        raise wrong(f"mutates_args names {unknown!r}, which is not one of its parameters")
    if any(argument.name == "out" for argument in arguments):
        raise wrong("a parameter cannot be called 'out', for `op(..., out=)` is the op's own")
    if not any(argument.is_tensor for argument in arguments):
        raise wrong("it takes no tensor: an operator needs at least one")

    if "return" not in hints:
        raise wrong("its return annotation is missing: write `-> torch.Tensor`")
    results = _results(wrong, hints["return"])
    if mutates_args and results:
        what = "an op with mutates_args returns nothing: annotate `-> None` (calling the op returns the mutated tensor)"
        raise wrong(what)
    if not mutates_args and not results:
        raise wrong("it returns nothing and mutates nothing: name what it changes in mutates_args")
    return Signature(tuple(arguments), results)


def closed_over(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of enclosing functions that a function uses: such as a `torch` that one of them imports."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != EMPTY_CELL}


def _argument(
    wrong: Callable[[str], SignatureError], parameter: inspect.Parameter, hints: dict[str, Any], mutated: bool
) -> Argument:
    name, default = parameter.name, parameter.default
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise wrong(f"*{name} is not accepted: name every parameter")
    if name not in hints:
        raise wrong(f"parameter {name!r} has no annotation: write `{name}: torch.Tensor`")
    text = _type_text(hints[name])
    if text is None:
        raise wrong(f"parameter {name!r} is annotated {_shown(hints[name])}; accepted are {ACCEPTED}")
    if mutated and text != "Tensor":
        raise wrong(f"mutates_args names {name!r}, which is {text}, not a Tensor")
    if default is not inspect.Parameter.empty:
        try:
            torch._C.parse_schema(f"opsmith::probe({text} {name}={_default_text(default)}) -> ()")
        except RuntimeError:
            what = f"the default {name}={default!r} cannot be written in a schema; use None and set the value inside"
            raise wrong(what) from None
    kind = KINDS.get(text, Kind.VALUE)
    return Argument(name, text, kind, default, parameter.kind is parameter.KEYWORD_ONLY, mutated)


def _type_text(annotation: Any) -> str | None:
    """The schema type of an annotation, or None if there is none."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        present = [member for member in inner if member is not type(None)]
        if len(present) == len(inner):
            return None
        text = _type_text(present[0] if len(present) == 1 else typing.Union[tuple(present)])  # noqa: UP007
        return None if text is None or text.endswith("?") or text == "Tensor[]" else f"{text}?"
    if origin in (list, Sequence) and len(inner) == 1:
        if inner[0] in _IN_LISTS:
            return f"{_SCALARS[inner[0]]}[]"
        return "Tensor?[]" if _type_text(inner[0]) == "Tensor?" else None
    return None


def _results(wrong: Callable[[str], SignatureError], annotation: Any) -> tuple[Kind, ...]:
    if annotation is type(None):
        return ()
    if annotation is torch.Tensor:
        return (Kind.TENSOR,)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list and inner == (torch.Tensor,):
        return (Kind.TENSOR_LIST,)
    if origin is tuple and inner and all(member is torch.Tensor for member in inner):
        return (Kind.TENSOR,) * len(inner)
    raise wrong(
        f"its return annotation is {_shown(annotation)}; an op returns torch.Tensor, tuple[torch.Tensor, ...] of a "
        "fixed length written out, or list[torch.Tensor]"
    )


def _default_text(value: Any) -> str:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return f'"{value}"'
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_default_text(item) for item in value)}]"
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{value:.1f}"
    return repr(value)


def _shown(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) if isinstance(annotation, type) else str(annotation)  # type: ignore[return-value]


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
