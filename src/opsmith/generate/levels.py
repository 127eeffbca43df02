"""What an operator, its backward and the backward of that compute: one description for every order of derivative.

A level has slots, the tensors its operator takes, flattened, and results. The next level's operator takes the gradients
of the results, then everything this one takes, then the results themselves, and returns the gradients that are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..errors import SourceLine
from .expression import (
    Column,
    Constant,
    Form,
    Input,
    Interner,
    Node,
    Program,
    Result,
    Rows,
    Scalar,
    postorder,
    program,
    substituted,
    varying,
)
from .functions import Builder, Value
from .functions.core import CAST, of
from .rows.dimensions import Covers
from .specialise import Specialised, TensorKind
from .text import computed_in, safe


@dataclass(frozen=True)
class Level:
    name: str
    names: tuple[str, ...]  # of the slots
    kinds: tuple[TensorKind | None, ...]
    result_names: tuple[str, ...]
    results: tuple[Node, ...]
    dtypes: tuple[torch.dtype, ...]  # of the results in memory
    likes: tuple[int | Form, ...]  # the slot whose shape a result has, or its form
    covers: tuple[Covers, ...]
    interner: Interner
    origin: SourceLine | None
    rows: Rows | None = None  # of a row program
    checks: tuple[Node, ...] = ()
    any_rank: bool = True  # whether tensors with more dimensions have the same program

    def program(self) -> Program:
        lowered = expanded(self.interner, [*self.results, *self.checks])
        count = len(self.results)
        results = [
            Result(name, node, dtype, like)
            for name, node, dtype, like in zip(self.result_names, lowered[:count], self.dtypes, self.likes, strict=True)
        ]
        dtypes = [torch.float32 if kind is None else kind.dtype for kind in self.kinds]
        return program(self.name, results, self.names, dtypes, self.origin, self.rows, lowered[count:])

    def form(self, slot: int) -> Form:
        return self.rows.forms[slot] if self.rows is not None else Form.FULL

    def result_form(self, result: int) -> Form:
        like = self.likes[result]
        return like if isinstance(like, Form) else self.form(like)


def forward(
    name: str, names: Sequence[str], result_names: Sequence[str], of: Specialised, origin: SourceLine | None
) -> Level:
    known = safe([*names, *result_names])
    return Level(
        name, known[: len(names)], of.kinds, known[len(names) :], of.results, of.dtypes,
        of.forms or (Form.FULL,) * len(of.results), tuple(dict.fromkeys(of.covers)), of.interner, origin, of.rows,
        of.checks, of.any_rank,
    )  # fmt: skip


def backward(
    level: Level,
    name: str,
    grads: Sequence[TensorKind | None],
    kept: Sequence[TensorKind | None],
    needs: Sequence[bool],
) -> Level:
    """The level of the gradients. `grads` and `kept`: the gradients and results that are given. A given result is read
    instead of recomputed."""
    before, count = len(grads), len(level.names)
    interner = Interner()
    slots = {slot: interner.input(before + slot, computed_in(k.dtype)) for slot, k in enumerate(level.kinds) if k}
    leaves = [node for node in postorder(level.results) if node.function is None]
    moved = substituted(interner, level.results, {leaf: _moved(leaf, interner, slots) for leaf in leaves})
    given = [None if kind is None else interner.input(j, computed_in(kind.dtype)) for j, kind in enumerate(grads)]
    wanted = [slot for slot in range(count) if needs[slot]]
    rows = None
    if level.rows is not None:
        forms = [level.result_form(index) for index in range(before)]
        rows = Rows(level.rows.dimensions, (*forms, *level.rows.forms, *forms[: len(kept)]))
    gradients = pullback(interner, moved, given, [slots[slot] for slot in wanted], rows)
    known: dict[Node, Node] = {}
    for index, kind in enumerate(kept):
        if kind is not None and not isinstance(moved[index], Input):
            known[moved[index]] = interner.input(before + count + index, computed_in(kind.dtype))
    gradients = substituted(interner, gradients, known)
    grad_names = [f"grad_{result}" for result in level.result_names]
    names = safe([*grad_names, *level.names, *level.result_names])
    kinds = (*grads, *level.kinds, *kept)
    return Level(
        name, names, kinds,
        safe([*names, *(f"grad_{level.names[slot]}" for slot in wanted)])[len(names) :],
        tuple(gradients), tuple(level.kinds[slot].dtype for slot in wanted),  # type: ignore[union-attr]
        tuple(before + slot for slot in wanted),
        tuple(Covers(each.dimensions, frozenset(before + slot for slot in each.slots)) for each in level.covers),
        interner, level.origin, rows, (), level.any_rank,
    )  # fmt: skip


def _moved(leaf: Node, interner: Interner, slots: dict[int, Input]) -> Node:
    """A leaf in another interner, an input in another slot."""
    if isinstance(leaf, Input):
        return slots[leaf.slot]
    if isinstance(leaf, Scalar):
        return interner.scalar(leaf.name, leaf.position, leaf.dtype)
    if isinstance(leaf, Column):
        return interner.column()
    assert isinstance(leaf, Constant)
    return interner.constant(leaf.value, leaf.dtype)


@dataclass(frozen=True)
class Saves:
    """The slots and results that a call saves for its backward. They are enough for derivatives of every order, because
    the derivative of an expression in them is an expression in them."""

    inputs: frozenset[int]
    results: frozenset[int]


def saves_of(level: Level, kept: Sequence[TensorKind | None] = ()) -> Saves:
    """What the gradients of all inputs are computed from if these results are kept."""
    read = inputs_of(expanded_results(_full_backward(level, kept or [None] * len(level.results))))
    first, count = len(level.results), len(level.names)
    inputs = frozenset(slot - first for slot in read if first <= slot < first + count)
    return Saves(inputs, frozenset(slot - first - count for slot in read if slot >= first + count))


def passthrough(level: Level) -> tuple[int | None, ...]:
    """For each slot the result whose gradient is also the slot's, unchanged, or None."""
    gradients = iter(_full_backward(level, [None] * len(level.results)).results)
    found = [next(gradients) if floating else None for floating in _floating(level)]
    return tuple(node.slot if isinstance(node, Input) and node.slot < len(level.results) else None for node in found)


def _floating(level: Level) -> list[bool]:
    return [kind is not None and kind.dtype.is_floating_point for kind in level.kinds]


def _full_backward(level: Level, kept: Sequence[TensorKind | None]) -> Level:
    """The gradients of all floating inputs, given those of all floating results."""
    grads = [TensorKind(dtype, False) if dtype.is_floating_point else None for dtype in level.dtypes]
    return backward(level, "", grads, kept, _floating(level))


def least_saves(level: Level, plain: Saves) -> Saves:
    """The fewest tensors that are enough; `plain` are the inputs that are. A result replaces inputs if it is stored
    without rounding, and if that leaves fewer tensors or no input at all."""
    exact = [
        TensorKind(dtype, False) if node.dtype == dtype and dtype.is_floating_point else None
        for node, dtype in zip(level.results, level.dtypes, strict=True)
    ]
    if not any(exact):
        return plain
    instead = saves_of(level, exact)
    fewer = len(instead.inputs) + len(instead.results) < len(plain.inputs)
    no_input = not instead.inputs and len(instead.results) <= len(plain.inputs)
    return instead if instead.results and (fewer or no_input) else plain


def always_covered(level: Level) -> bool:
    """Whether every call has a kernel, whatever sizes of one it broadcasts: each dimension has the same slots in all
    conditions."""
    by_dimension: dict[int | None, set[frozenset[int]]] = {}
    for each in level.covers:
        for dimension in each.dimensions or (None,):
            by_dimension.setdefault(dimension, set()).add(each.slots)
    return all(len(found) == 1 for found in by_dimension.values())


def expanded_results(level: Level) -> list[Node]:
    return expanded(level.interner, level.results)


# --- the derivative of expressions: adjoints from the results back to the inputs, by each function's own rule ---------


def pullback(
    interner: Interner,
    results: Sequence[Node],
    grads: Sequence[Node | None],
    wanted: Sequence[Input],
    rows: Rows | None = None,
) -> list[Node]:
    """The gradient of each wanted input, given the gradients of the results (None: it has none). Zero if the results do
    not depend on an input, or only by steps.

    In a row program, the gradient of a value per row that elements use is the sum of its gradients over the row: the
    adjoint of a broadcast is a sum, and vice versa."""
    builder = Builder(interner)
    adjoints: dict[Node, Value] = {}
    elements = varying(results, rows) if rows is not None else None

    def one_per_row(node: Node) -> bool:
        return elements is not None and node not in elements

    def send(node: Node, grad: Value) -> None:
        builder.line = node.line
        before = adjoints.get(node)
        adjoints[node] = grad if before is None else _sum(builder, before, grad)

    for result, grad in zip(results, grads, strict=True):
        if grad is not None and result.dtype.is_floating_point:
            value = builder.cast(builder.value(grad), result.dtype)
            summed = one_per_row(result) and rows is not None and rows.varies(grad)
            send(result, of("row_sum", value) if summed else value)
    reached = _depending_on(results, wanted)
    for node in reversed(list(postorder(results))):
        if node.function is None or node not in adjoints or node not in reached or node.function.derivative is None:
            continue
        builder.line = node.line
        values = [builder.value(arg) for arg in node.args]
        returned = node.function.derivative(adjoints[node], *values, builder.value(node))
        for arg, grad_value in zip(node.args, returned, strict=True):
            if grad_value is not None and arg in reached and arg.dtype.is_floating_point:
                value = builder.cast(grad_value, arg.dtype)
                summed = one_per_row(arg) and (node.function.reduces or not one_per_row(node))
                send(arg, of("row_sum", value) if summed else value)
    return [adjoints[leaf].node if leaf in adjoints else interner.constant(0, leaf.dtype) for leaf in wanted]


def _sum(builder: Builder, first: Value, second: Value) -> Value:
    """Half types are added in float32 and rounded, as torch does."""
    held = computed_in(first.dtype)
    return builder.cast(builder.cast(first, held) + builder.cast(second, held), first.dtype)


def _depending_on(results: Sequence[Node], leaves: Sequence[Input]) -> set[Node]:
    found: set[Node] = set(leaves)
    for node in postorder(results):
        if any(arg in found for arg in node.args):
            found.add(node)
    return found


def expanded(interner: Interner, roots: Sequence[Node]) -> list[Node]:
    """The expressions in functions that have a C++ text: a function defined by others is replaced by its definition,
    recursively."""
    builder = Builder(interner)
    done: dict[Node, Node] = {}
    return [_expand(builder, root, done) for root in roots]


def _expand(builder: Builder, root: Node, done: dict[Node, Node]) -> Node:
    for node in postorder([root]):
        if node in done:
            continue
        if node.function is None:
            done[node] = node
            continue
        args = [done[arg] for arg in node.args]
        if node.function.expand is not None:
            builder.line = node.line
            definition = node.function.expand(*[builder.value(arg) for arg in args]).node
            done[node] = _expand(builder, definition, done)
        elif node.function is CAST:
            done[node] = builder.cast(builder.value(args[0]), node.dtype).node
        else:
            done[node] = builder.interner.call(node.function, args, node.dtype, node.line)
    return done[root]


def inputs_of(roots: Sequence[Node]) -> set[int]:
    """The slots that expressions read."""
    return {node.slot for node in postorder(roots) if isinstance(node, Input)}
