"""The passes over a row: which reductions run together, and what each pass loads, computes, carries on and stores.

A reduction runs in the first pass in which everything it depends on is known. Values per row are computed between the
passes. An element that costs more than a load and is needed again is carried on to later passes; any other element is
computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..expression import Form, Input, Interner, Node, Program, Result, postorder, varying
from ..functions import Builder
from ..functions.core import of
from ..text import HALF, sum_dtype
from .factors import without_common_factors

CARRIED, CARRIED_ON_GPU = 8, 2
"""An element of at least this many instructions is carried on to later passes instead of being computed again. The
second number is for half types on a GPU, where a kernel that keeps up with memory has 15 instructions per element of a
tensor."""

ROLES = {"strided1": "element", "stridedn": "element", "row": "row", "reduced:inner": "column",
         "reduced:none": "total", "reduced:segments": "segment", "absent": "absent"}  # fmt: skip
"""What a kernel writes for a result, by its mode: each element, a value per row, or sums over rows of each column, of
segments of columns or of everything."""


@dataclass
class Pass:
    """One time through a row's elements, in this order: load, compute, reduce, carry, store."""

    loads: list[Input] = field(default_factory=list)
    carried_in: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    reductions: list[Node] = field(default_factory=list)
    carried_out: list[Node] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)  # results that are stored
    columns: list[int] = field(default_factory=list)  # results that are added up over rows, or over segments of them
    numbers: bool = False  # whether the column's number is used


@dataclass
class Pick:
    """The element of a row at an index: what is loaded and computed for that element alone."""

    node: Node
    loads: list[Input]
    nodes: list[Node]

    @property
    def element(self) -> Node:
        return self.node.args[0]

    @property
    def index(self) -> Node:
        return self.node.args[1]


@dataclass
class Schedule:
    program: Program  # whose results are what is written: a sum over the row where a result has one
    roles: list[str]  # by result
    constants: list[Node] = field(default_factory=list)  # of arguments alone
    row_inputs: list[Input] = field(default_factory=list)  # one value per row
    between: list[list[Node | Pick]] = field(default_factory=list)  # values per row: before each pass, after the last
    passes: list[Pass] = field(default_factory=list)

    @property
    def carried(self) -> list[Node]:
        return list(dict.fromkeys(node for each in self.passes for node in each.carried_out))

    def having(self, role: str) -> list[int]:
        return [index for index, each in enumerate(self.roles) if each == role]


def schedule(
    program: Program, modes: Sequence[str], cost: Callable[[Node], int], on_gpu: bool = False, carries: bool = True
) -> Schedule:
    """The passes of a row program. `modes`: of its results. `cost`: the instructions of a node, roughly. `carries`:
    whether passes carry elements on."""
    roles = [ROLES[mode] for mode in modes]
    program = without_common_factors(_with_sums(program, roles))
    assert program.rows is not None
    found = Schedule(program, roles)
    roots = [r.expression for r, role in zip(program.results, roles, strict=True) if role != "absent"]
    roots += program.checks
    nodes = list(postorder(roots))
    elements = varying(roots, program.rows)
    depths = _depths(nodes)
    count = 1 + max((depths[node] - 1 for node in nodes if _reduces(node)), default=-1)
    for result, role in zip(program.results, roles, strict=True):
        if role in ("element", "column", "segment"):
            count = max(count, depths[result.expression] + 1)
    found.passes = [Pass() for _ in range(count)]
    found.between = [[] for _ in range(count + 1)]

    of_rows: set[Node] = set()
    for node in nodes:
        if node in elements:
            continue
        if isinstance(node, Input):
            found.row_inputs.append(node)
            of_rows.add(node)
        elif _reduces(node):
            found.passes[depths[node] - 1].reductions.append(node)
            of_rows.add(node)
        elif node.function is not None and node.function.name == "row_at":
            below = _below([node.args[0]], elements, set())
            loads = [each for each in below if isinstance(each, Input)]
            pick = Pick(node, loads, [each for each in below if each.function is not None])
            found.between[depths[node]].append(pick)
            of_rows.add(node)
        elif any(arg in of_rows for arg in node.args):
            found.between[depths[node]].append(node)
            of_rows.add(node)
        elif node.function is not None:
            found.constants.append(node)
    for index, (result, role) in enumerate(zip(program.results, roles, strict=True)):
        if role == "element":
            found.passes[depths[result.expression]].elements.append(index)
        elif role in ("column", "segment"):
            found.passes[depths[result.expression]].columns.append(index)

    halves = {read.slot for read in program.reads if read.dtype in HALF}
    only_halves = all(read.dtype in HALF for read in program.reads if read.dtype.is_floating_point)

    def cost_on_gpu(node: Node) -> int:
        """Elements that are divided by one number are multiplied by its reciprocal; loaded halves are converted."""
        if node.function is None:
            return int(isinstance(node, Input) and node.slot in halves)
        return min(3, cost(node)) if node.function.name == "div" and node.args[1] not in elements else cost(node)

    least = CARRIED_ON_GPU if on_gpu and only_halves else CARRIED
    _find_elements(found, elements, cost_on_gpu if on_gpu else cost, least if carries else None)
    return found


def _with_sums(program: Program, roles: Sequence[str]) -> Program:
    """The program with sums over the row where a result has them."""
    rows = program.rows
    assert rows is not None
    builder = Builder(Interner())
    results: list[Result] = []
    for result, role in zip(program.results, roles, strict=True):
        expression = result.expression
        if role in ("row", "total", "column", "segment") and isinstance(result.like, int):
            value = builder.cast(builder.value(expression), sum_dtype(result.dtype))
            if role not in ("column", "segment") and rows.forms[result.like] is Form.FULL:
                value = of("row_sum", value)
            expression = value.node
        results.append(replace(result, expression=expression))
    return replace(program, results=tuple(results))


def _reduces(node: Node) -> bool:
    """Whether a node needs a pass over the row."""
    return node.function is not None and node.function.reduces and node.function.name != "row_at"


def _depths(nodes: Sequence[Node]) -> dict[Node, int]:
    """The number of passes before a node is known."""
    depths: dict[Node, int] = {}
    for node in nodes:
        depths[node] = max((depths[arg] for arg in node.args), default=0) + _reduces(node)
    return depths


def _find_elements(found: Schedule, elements: set[Node], cost: Callable[[Node], int], least: int | None) -> None:
    """What each pass loads and computes. `least`: the cost from which on an element is carried on, None if none is."""
    results = found.program.results
    kept: set[Node] = set()  # carried on by an earlier pass
    needed: list[list[Node]] = []
    for each in found.passes:
        roots = [arg for node in each.reductions for arg in node.args]
        roots += [results[index].expression for index in (*each.elements, *each.columns)]
        needed.append([root for root in dict.fromkeys(roots) if root in elements])
    later = [_below([root for roots in needed[number + 1 :] for root in roots], elements, set())
             for number in range(len(needed))]  # fmt: skip
    for number, each in enumerate(found.passes):
        below = _below(needed[number], elements, kept)
        for node in below:
            if node in kept:
                each.carried_in.append(node)
            elif isinstance(node, Input):
                each.loads.append(node)
            elif node.function is None:
                each.numbers = True
            else:
                each.nodes.append(node)
        again = set(later[number])
        for node in each.nodes:
            if (
                least is not None
                and node in again
                and _total(node, elements, kept, cost) >= least
                and _is_used(node, needed, number, elements)
            ):
                each.carried_out.append(node)
        kept.update(each.carried_out)


def _below(roots: Sequence[Node], elements: set[Node], stop: set[Node]) -> list[Node]:
    """The elements that roots are computed from, down to those in `stop`, arguments first."""
    found: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            found[node] = None
        elif node not in found:
            stack.append((node, True))
            if node not in stop:
                stack.extend((arg, False) for arg in reversed(node.args) if arg in elements)
    return list(found)


def _total(node: Node, elements: set[Node], kept: set[Node], cost: Callable[[Node], int]) -> int:
    """Instructions to compute a node again."""
    return sum(cost(each) for each in _below([node], elements, kept) if each not in kept)


def _is_used(node: Node, needed: Sequence[Sequence[Node]], number: int, elements: set[Node]) -> bool:
    """Whether a later pass uses a node by itself: as a root, or for a node that only that pass can compute."""
    known = set(_below(needed[number], elements, set()))
    for roots in needed[number + 1 :]:
        for each in _below(roots, elements, known):
            if each is node and node in roots:
                return True
            if each not in known and node in each.args:
                return True
    return False
