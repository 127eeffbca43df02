"""What an operator, its backward and the backward of that compute: one description for every order of derivative.

A level has slots, the tensors its operator takes, flattened, and results. The next level's operator takes the gradients
of the results, then everything this one takes, then the results themselves, and gives the gradients that are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .derive import expanded, inputs_of, pullback, substituted
from .expression import Constant, Input, Interner, Line, Node, Program, Result, Scalar, postorder, program
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
    likes: tuple[int | None, ...]  # the slot whose shape a result has; None: the full shape
    shaped_by: tuple[frozenset[int], ...]  # groups of slots, each of which must broadcast to the full shape
    interner: Interner
    origin: Line | None

    def program(self) -> Program:
        lowered = expanded(self.interner, self.results)
        results = [
            Result(name, node, dtype, like)
            for name, node, dtype, like in zip(self.result_names, lowered, self.dtypes, self.likes, strict=True)
        ]
        dtypes = [torch.float32 if kind is None else kind.dtype for kind in self.kinds]
        return program(self.name, results, self.names, dtypes, self.origin)


def forward(
    name: str, names: Sequence[str], result_names: Sequence[str], of: Specialised, origin: Line | None
) -> Level:
    known = safe([*names, *result_names])
    return Level(
        name, known[: len(names)], of.kinds, known[len(names) :], of.results, of.dtypes, (None,) * len(of.results),
        tuple(dict.fromkeys(of.shaped_by)), of.interner, origin,
    )  # fmt: skip


def backward(
    level: Level,
    name: str,
    grads: Sequence[TensorKind | None],
    kept: Sequence[TensorKind | None],
    needs: Sequence[bool],
) -> Level:
    """The level of the gradients. `grads` and `kept` say which gradients and results are given; a result that is given
    is read instead of computed again."""
    before, count = len(grads), len(level.names)
    interner = Interner()
    slots = {slot: interner.input(before + slot, computed_in(k.dtype)) for slot, k in enumerate(level.kinds) if k}
    moved = _moved(level, interner, slots)
    given = [None if kind is None else interner.input(j, computed_in(kind.dtype)) for j, kind in enumerate(grads)]
    wanted = [slot for slot in range(count) if needs[slot]]
    gradients = pullback(interner, moved, given, [slots[slot] for slot in wanted])
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
        tuple(frozenset(before + slot for slot in group) for group in level.shaped_by),
        interner, level.origin,
    )  # fmt: skip


def _moved(level: Level, interner: Interner, slots: dict[int, Input]) -> list[Node]:
    """A level's results in another interner, its inputs in other slots."""
    done: dict[Node, Node] = {}
    for node in postorder(level.results):
        if isinstance(node, Input):
            done[node] = slots[node.slot]
        elif isinstance(node, Scalar):
            done[node] = interner.scalar(node.name, node.position, node.dtype)
        elif isinstance(node, Constant):
            done[node] = interner.constant(node.value, node.dtype)
        else:
            assert node.function is not None
            done[node] = interner.call(node.function, [done[arg] for arg in node.args], node.dtype, node.line)
    return [done[result] for result in level.results]


@dataclass(frozen=True)
class Saves:
    """What a call keeps for its backward: slots and results. Whatever derivative of whatever order is asked for later,
    these are enough: the derivative of an expression in them is an expression in them."""

    inputs: frozenset[int]
    results: frozenset[int]


def saves_of(level: Level, kept: Sequence[TensorKind | None] = ()) -> Saves:
    """What the gradients of all inputs are computed from, where these results are kept."""
    floating = [kind is not None and kind.dtype.is_floating_point for kind in level.kinds]
    grads = [TensorKind(dtype, False) if dtype.is_floating_point else None for dtype in level.dtypes]
    nothing: list[TensorKind | None] = [None] * len(level.results)
    read = inputs_of(expanded_results(backward(level, "", grads, kept or nothing, floating)))
    first, count = len(grads), len(level.names)
    inputs = frozenset(slot - first for slot in read if first <= slot < first + count)
    return Saves(inputs, frozenset(slot - first - count for slot in read if slot >= first + count))


def passthrough(level: Level) -> tuple[int | None, ...]:
    """For each slot the result whose gradient is also the slot's, unchanged, or None."""
    grads = [TensorKind(dtype, False) if dtype.is_floating_point else None for dtype in level.dtypes]
    floating = [kind is not None and kind.dtype.is_floating_point for kind in level.kinds]
    gradients = iter(backward(level, "", grads, [None] * len(level.results), floating).results)
    found = [next(gradients) if is_floating else None for is_floating in floating]
    return tuple(node.slot if isinstance(node, Input) and node.slot < len(grads) else None for node in found)


def least_saves(level: Level, plain: Saves) -> Saves:
    """The fewest tensors that do, `plain` being the inputs that do. A result takes the place of inputs where it is
    stored as it was computed, without rounding, and where that leaves fewer tensors or no input at all."""
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


def expanded_results(level: Level) -> list[Node]:
    return expanded(level.interner, level.results)
