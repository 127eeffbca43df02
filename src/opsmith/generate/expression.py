"""Expressions: what one element of an operator computes, as a graph of functions over inputs and numbers.

Nodes are interned: the same function of the same arguments is the same node, so a graph computes nothing twice and
equality is identity. Every node has a dtype; the arguments of a function are cast to the dtype that it computes in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ..errors import SourceLine

if TYPE_CHECKING:
    from .functions import Function


@dataclass(frozen=True, eq=False)
class Node:
    """`function` of `args`, or a leaf: a tensor's element (Input), an argument (Scalar), a number (Constant)."""

    dtype: torch.dtype
    args: tuple[Node, ...] = ()
    function: Function | None = None
    line: SourceLine | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Input(Node):
    """The element of a tensor. `slot` counts the operator's tensors; a half type is computed with as float32."""

    slot: int = 0


@dataclass(frozen=True, eq=False)
class Scalar(Node):
    """A float, int or bool argument of the operator; `dtype` is float64, int64 or bool. `position` counts the
    operator's arguments; a negative one is a dimension of the full shape, whose size this is."""

    name: str = ""
    position: int = 0


@dataclass(frozen=True, eq=False)
class Constant(Node):
    value: float | int | bool = 0


@dataclass(frozen=True, eq=False)
class Column(Node):
    """The number of the element in its row, an int64."""


AnyNode = TypeVar("AnyNode", bound=Node)


class Interner:
    """Makes nodes, each once."""

    def __init__(self) -> None:
        self._nodes: dict[Any, Any] = {}

    def _intern(self, node: AnyNode, *key: Any) -> AnyNode:
        found: AnyNode = self._nodes.setdefault(key, node)
        return found

    def input(self, slot: int, dtype: torch.dtype) -> Input:
        return self._intern(Input(dtype, slot=slot), "input", slot, dtype)

    def scalar(self, name: str, position: int, dtype: torch.dtype) -> Scalar:
        return self._intern(Scalar(dtype, name=name, position=position), "scalar", name)

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> Constant:
        value = _converted(value, dtype)
        # repr distinguishes -0.0 from 0.0 and treats NaN as equal.
        return self._intern(Constant(dtype, value=value), "constant", repr(value), dtype)

    def column(self) -> Column:
        return self._intern(Column(torch.int64), "column")

    def call(
        self, function: Function, args: Sequence[Node], dtype: torch.dtype, line: SourceLine | None = None
    ) -> Node:
        return self._intern(Node(dtype, tuple(args), function, line), function.name, dtype, *map(id, args))


def _converted(value: Any, dtype: torch.dtype) -> Any:
    if dtype is torch.float32:
        return rounded(float(value))
    if dtype.is_floating_point:
        return float(value)
    if dtype is torch.bool:
        return bool(value)
    low, count = torch.iinfo(dtype).min, 1 << torch.iinfo(dtype).bits
    return (int(value) - low) % count + low  # wraps, as torch's casts do


def rounded(number: float) -> float:
    """The nearest float32. Not by a tensor, which a torch mode may intercept."""
    return ctypes.c_float(number).value


def postorder(roots: Iterable[Node]) -> Iterator[Node]:
    """The roots and every node below them, arguments before the nodes that use them."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))


def varying(roots: Iterable[Node], rows: Rows) -> set[Node]:
    """The nodes below the roots that differ from element to element of a row."""
    found: set[Node] = set()
    for node in postorder(roots):
        if node.function is None:
            if rows.varies(node):
                found.add(node)
        elif not node.function.reduces and any(arg in found for arg in node.args):
            found.add(node)
    return found


def substituted(interner: Interner, roots: Sequence[Node], replacements: Mapping[Node, Node]) -> list[Node]:
    """The expressions with some nodes replaced by others, which belong to this interner as the other leaves do."""
    done: dict[Node, Node] = dict(replacements)
    for node in postorder(roots):
        if node in done:
            continue
        if node.function is None:
            done[node] = node
        else:
            done[node] = interner.call(node.function, [done[arg] for arg in node.args], node.dtype, node.line)
    return [done[root] for root in roots]


@dataclass(frozen=True)
class Read:
    """A tensor that a program reads."""

    slot: int
    name: str
    dtype: torch.dtype  # in memory


class Form(Enum):
    """Which dimensions of the full shape a tensor of a row program has."""

    FULL = 0
    """All, as far as they are not broadcast. Every tensor of a pointwise program."""
    KEPT = 1
    """All, with size one along the row: keepdim=True."""
    SQUEEZED = 2
    """Those that are not along the row."""


@dataclass(frozen=True)
class Rows:
    """What a row program has in addition to its expressions."""

    dimensions: tuple[int, ...]
    """Those along the row, counted from the last of the full shape: -1, -2 and so on, ascending."""
    forms: tuple[Form, ...]
    """Of the slots."""

    def varies(self, node: Node) -> bool:
        """Whether a leaf differs from element to element of a row."""
        return isinstance(node, Column) or (isinstance(node, Input) and self.forms[node.slot] is Form.FULL)


@dataclass(frozen=True)
class Result:
    """A tensor that a program writes: of a form, or of the shape of the tensor in slot `like`, to which it is then
    summed."""

    name: str
    expression: Node
    dtype: torch.dtype  # in memory
    like: int | Form = Form.FULL


@dataclass(frozen=True)
class Program:
    """What a kernel computes for each element, in any layout of its tensors."""

    name: str
    reads: tuple[Read, ...]
    results: tuple[Result, ...]
    scalars: tuple[Scalar, ...]
    origin: SourceLine | None = None
    rows: Rows | None = None
    checks: tuple[Node, ...] = ()
    """Conditions on the arguments; the reference, which raises an error, runs where one does not hold."""

    def roots(self) -> list[Node]:
        return [*(result.expression for result in self.results), *self.checks]

    def nodes(self) -> list[Node]:
        return list(postorder(self.roots()))


def program(
    name: str,
    results: Sequence[Result],
    names: Sequence[str],
    dtypes: Sequence[torch.dtype],
    origin: SourceLine | None,
    rows: Rows | None = None,
    checks: Sequence[Node] = (),
) -> Program:
    """The program of these results, which reads only what they use. `names` and `dtypes` are by slot."""
    nodes = list(postorder([*(result.expression for result in results), *checks]))
    slots = sorted({node.slot for node in nodes if isinstance(node, Input)})
    scalars = sorted((node for node in nodes if isinstance(node, Scalar)), key=lambda scalar: scalar.position)
    reads = tuple(Read(slot, names[slot], dtypes[slot]) for slot in slots)
    return Program(name, reads, tuple(results), tuple(scalars), origin, rows, tuple(checks))
