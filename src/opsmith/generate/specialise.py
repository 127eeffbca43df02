"""A trace for given dtypes as expressions.

torch itself decides every dtype: each call of the trace runs on tensors of two elements (or without dimensions, where
the argument has none), so promotion is torch's by construction. Half types are computed in float32; a second run with
the true dtypes gives the dtypes of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import fx

from ..errors import NotPointwiseError, NotRowwiseError, UndeclaredMutationError, definition
from ..reference.signature import Argument
from . import scalars
from .expression import Form, Interner, Node, Rows, substituted
from .functions import Builder, Call, Value, find
from .rows.dimensions import Broadcasting, Covers, Dimensions, Unaligned
from .rows.shapes import Several, ShapeOf, of_shape
from .text import HALF, SCALAR_TYPES, computed_in, safe
from .trace import Trace

Refusal = TypeVar("Refusal", bound=Exception)


class TensorKind(NamedTuple):
    """What a program depends on: dtype, whether there are dimensions (type promotion), in a row program how many."""

    dtype: torch.dtype
    zero_dim: bool
    rank: int = 1

    def example(self, dtype: torch.dtype) -> torch.Tensor:
        sizes = () if self.zero_dim else (2,) * self.rank
        return torch.full(sizes, 0.5 if dtype.is_floating_point else 1, dtype=dtype)


@dataclass(frozen=True)
class Specialised:
    """What an operator computes for tensors of certain kinds, absent ones None."""

    kinds: tuple[TensorKind | None, ...]
    results: tuple[Node, ...]
    dtypes: tuple[torch.dtype, ...]  # of the results in memory
    covers: tuple[Covers, ...]
    interner: Interner
    rows: Rows | None = None
    forms: tuple[Form, ...] = ()  # of the results
    checks: tuple[Node, ...] = ()  # conditions on indices: if one does not hold, torch raises an error
    any_rank: bool = True  # whether tensors with more dimensions have the same program


def specialise(trace: Trace, kinds: Sequence[TensorKind | None]) -> Specialised:
    for kind in kinds:
        if kind is not None and kind.dtype not in SCALAR_TYPES:
            raise UnsupportedDtype(kind.dtype)
    with torch.no_grad(), torch._C._DisableAutocast():
        run = Run(trace, kinds)
        returned = run.results()
        dtypes = [value.example.dtype for value in returned]
        if any(kind is not None and kind.dtype in HALF for kind in kinds):
            dtypes = _true_dtypes(trace, kinds)
    for dtype in dtypes:
        if dtype not in SCALAR_TYPES:
            raise UnsupportedDtype(dtype)
    return run.specialised(returned, dtypes)


class RefusedByTorch(NotPointwiseError, NotRowwiseError):
    """torch refuses these dtypes for a function; it may accept others."""

    def __init__(self, message: str) -> None:
        TypeError.__init__(self, message)


class UnsupportedDtype(Exception):
    """A dtype that no kernel is generated for, such as complex numbers: the reference runs."""


def _true_dtypes(trace: Trace, kinds: Sequence[TensorKind | None]) -> list[torch.dtype]:
    """The dtypes of the results for these dtypes, half types included."""
    tensors = [None if kind is None else kind.example(kind.dtype) for kind in kinds]
    slots = iter(tensors)
    examples: list[Any] = [
        next(slots) if argument.is_tensor else _number(argument) for argument in trace.signature.arguments
    ]
    returned = _OnExamples(torch.nn.Module(), graph=trace.graph).run(*[examples[i] for i in trace.positions])
    if trace.signature.mutated:
        returned = [examples[trace.signature.arguments.index(argument)] for argument in trace.signature.mutated]
    return [result.dtype for result in (returned if isinstance(returned, (tuple, list)) else (returned,))]


class _OnExamples(fx.Interpreter):
    """Runs a trace on examples."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        try:
            return target(*args, **kwargs)
        except ValueError:
            if not any(isinstance(arg, torch.Tensor) for arg in args):
                return 0.5  # a function of numbers whose domain does not contain the example
            raise


def _number(argument: Argument) -> float | int:
    return 0.5 if argument.type == "float" else 1


class Run:
    """Runs each call of a trace on small tensors and builds its expression."""

    def __init__(self, trace: Trace, kinds: Sequence[TensorKind | None]) -> None:
        self.trace = trace
        self.builder = Builder(Interner())
        self.values: dict[fx.Node, Any] = {}
        self.roots: dict[fx.Node, fx.Node] = {}  # what an in-place call changed, for the value it returned
        self.inputs: dict[fx.Node, str] = {}
        self.kinds = tuple(kinds)
        self.shapes: Any = Dimensions() if trace.rows else Broadcasting()
        self.must_not_grow: list[Any] = []  # the places of values that are changed in place
        self.places: dict[int, Any] = {}  # of the inputs, by slot
        self._shared: set[fx.Node] = set()  # values that are, or may be, one memory with another
        self._on_examples = _OnExamples(torch.nn.Module(), graph=trace.graph)
        self._enter_placeholders(kinds)

    def _enter_placeholders(self, kinds: Sequence[TensorKind | None]) -> None:
        arguments = self.trace.signature.arguments
        names = safe([argument.name for argument in arguments])
        slots = {argument.name: slot for slot, argument in enumerate(self.trace.signature.tensors)}
        placeholders = (node for node in self.trace.graph.nodes if node.op == "placeholder")
        for position, node in zip(self.trace.positions, placeholders, strict=True):
            argument = arguments[position]
            if argument.is_tensor:
                slot = slots[argument.name]
                kind = kinds[slot]
                assert kind is not None
                dtype = computed_in(kind.dtype)
                leaf = self.builder.interner.input(slot, dtype)
                place = self.shapes.tensor(slot, 0 if kind.zero_dim else kind.rank)
                self.places[slot] = place
                self.values[node] = Value(self.builder, leaf, kind.example(dtype), place)
                self.inputs[node] = argument.name
            else:
                dtype = torch.float64 if argument.type == "float" else torch.int64
                scalar = self.builder.interner.scalar(names[position], position, dtype)
                self.values[node] = Value(self.builder, scalar, _number(argument))

    def results(self) -> list[Value]:
        needed = _needed(self.trace.graph)
        for node in self.trace.graph.nodes:
            if node.op in ("call_function", "call_method") and node in needed:
                self._call(node)
            elif node.op == "output":
                return self._returned(node)
        raise AssertionError("a graph has an output")

    def _value(self, node: fx.Node) -> Any:
        return self.values[self.roots.get(node, node)]

    def _returned(self, node: fx.Node) -> list[Value]:
        signature = self.trace.signature
        if signature.mutated:
            mutated = {argument.name for argument in signature.mutated}
            return [self.values[placeholder] for placeholder, name in self.inputs.items() if name in mutated]
        returned: Any = node.args[0]
        listed = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        values = [self._value(each) if isinstance(each, fx.Node) else each for each in listed]
        if len(values) != len(signature.results):
            what = f"it returns {len(values)} results, its annotation says {len(signature.results)}"
            raise self._refusal(node, what)
        for value in values:
            if not isinstance(value, Value) or not isinstance(value.example, torch.Tensor):
                raise self._refusal(node, "it returns something that is not a tensor")
        return values

    def specialised(self, returned: Sequence[Value], dtypes: Sequence[torch.dtype]) -> Specialised:
        nodes, interner = tuple(value.node for value in returned), self.builder.interner
        places = [self.shapes.broadcast([value.place]) for value in returned]
        if isinstance(self.shapes, Broadcasting):
            covers = [each for place in (*places, *self.must_not_grow) for each in self.shapes.covers(place)]
            return Specialised(self.kinds, nodes, tuple(dtypes), tuple(covers), interner)
        try:
            frame = self.shapes.frame()
            forms = [
                frame.form_of_input(self.places[slot]) if slot in self.places else Form.FULL
                for slot in range(len(self.kinds))
            ]
            results = [frame.form_of_result(place) for place in places]
        except Unaligned as error:
            refusal = self.trace.refusal(str(error), definition(self.trace.function))
            refusal.steps = len(self.values) + 1  # type: ignore[union-attr]
            raise refusal from error
        covers = [
            each for place in (*places, *self.must_not_grow, *self.shapes.operands) for each in frame.covers(place)
        ]
        covers += frame.covers_sizes()
        sizes = {
            node: interner.scalar(f"size_{-frame.dimension(of)}", frame.dimension(of), torch.int64)
            for node, of in self.shapes.sizes.items()
        }
        final = substituted(interner, [*nodes, *self.shapes.checks], sizes)
        return Specialised(
            self.kinds, tuple(final[: len(nodes)]), tuple(dtypes), tuple(dict.fromkeys(covers)), interner,
            Rows(frame.rows, tuple(forms)), tuple(results), tuple(dict.fromkeys(final[len(nodes) :])),
            not self.shapes.counts_from_the_first,
        )  # fmt: skip

    def size(self, value: Value, dimension: int) -> Value:
        """The size of a value's dimension, as a number."""
        node = self.shapes.size(self.builder.interner, value.place, dimension)
        return Value(self.builder, node, int(value.example.shape[dimension]))

    def _call(self, node: fx.Node) -> None:
        args = fx.node.map_arg(node.args, self._value)
        kwargs = fx.node.map_arg(node.kwargs, self._value)
        self.builder.line = node.meta.get("line")
        example = self._example(node, args, kwargs)
        try:
            if isinstance(example, torch.Tensor):
                self._tensor(node, args, kwargs, example)
            else:
                self.values[node] = self._plain(node, args, kwargs, example)
        except Unaligned as error:
            raise self._refusal(node, str(error)) from error

    def _example(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """torch's own result on the examples."""
        examples = [_example_of(arg) for arg in args]
        keywords = {key: _example_of(arg) for key, arg in kwargs.items()}
        try:
            return getattr(self._on_examples, node.op)(node.target, examples, keywords)
        except Exception as error:
            refusal = self._refusal(node, f"torch refuses it ({str(error).splitlines()[0]})")
            raise self._located(RefusedByTorch(str(refusal)), node) from error

    def _refusal(self, node: fx.Node, what: str) -> NotPointwiseError | NotRowwiseError:
        return self._located(self.trace.refusal(what, node.meta.get("line")), node)

    def _located(self, error: Refusal, node: fx.Node) -> Refusal:
        """With how far the trace got, and the slots that what is refused was computed from (for kinds.py)."""
        error.steps = len(self.values)  # type: ignore[attr-defined]
        error.slots = self._slots(node)  # type: ignore[attr-defined]
        return error

    def _slots(self, node: fx.Node) -> frozenset[int]:
        names = [argument.name for argument in self.trace.signature.tensors]
        found: set[int] = set()
        seen, waiting = {node}, [node]
        while waiting:
            each = waiting.pop()
            if self.inputs.get(each) in names:
                found.add(names.index(self.inputs[each]))
            more = [other for other in each.all_input_nodes if other not in seen]
            seen.update(more)
            waiting += more
        return frozenset(found)

    def _tensor(self, node: fx.Node, args: Any, kwargs: Any, example: torch.Tensor) -> None:
        """A call that gives a tensor."""
        if isinstance(args[0], Several):
            self.values[node] = args[0].part(args[1])
            return
        entry = find(node.target)
        if entry is None:
            raise self._refusal(node, f"{node.target} of a tensor is not an elementwise function")
        name, build, inplace = entry
        call = Call(self.builder, example.dtype, self.shapes)
        value = call.result(self._built(node, name, build, call, args, kwargs))
        given = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Value) and arg.place is not None]
        place = self.shapes.broadcast([arg.place for arg in given]) if call.place is None else call.place
        fresh = Value(self.builder, value.node, example, place)
        if inplace or kwargs.get("inplace"):
            self._change(node, fresh)
        else:
            self._note_shared(node, example)
            self.values[node] = fresh

    def _built(self, node: fx.Node, name: str, build: Any, call: Call, args: Any, kwargs: Any) -> Any:
        try:
            return build(call, *args, **kwargs)
        except (TypeError, AssertionError, KeyError) as error:
            what = f"{name} is not supported with these arguments ({error})"
            raise self._refusal(node, what) from error

    def _note_shared(self, node: fx.Node, example: torch.Tensor) -> None:
        """A cast to the dtype it has, or detach, gives the same memory under another name."""
        for other in node.all_input_nodes:
            value = self._value(other)
            if isinstance(value, Value) and isinstance(value.example, torch.Tensor):
                if value.example.data_ptr() == example.data_ptr():
                    self._shared |= {node, self.roots.get(other, other)}

    def _change(self, node: fx.Node, value: Value) -> None:
        target = node.args[0] if node.args else node.kwargs["input"]
        assert isinstance(target, fx.Node)
        root = self.roots.get(target, target)
        name = self.inputs.get(root)
        if name is not None and name not in {argument.name for argument in self.trace.signature.mutated}:
            culprit = f"the reference {self.trace.function.__name__} ({node.meta.get('line')})"
            raise UndeclaredMutationError(self.trace.name, name, culprit)
        if root in self._shared:
            what = "it changes in place what may be one memory with another value (write y = y + 1, or clone it before)"
            raise self._refusal(node, what)
        before = self.values[root].place
        if self.shapes.broadcast([before, value.place]) != before:
            self.must_not_grow.append(before)
        value.place = self.shapes.broadcast([before, value.place])
        self.roots[node] = root
        self.values[root] = value

    def _plain(self, node: fx.Node, args: Any, kwargs: Any, example: Any) -> Any:
        """A call that gives no tensor: a number, a dtype, or what only row programs use."""
        if isinstance(example, (torch.dtype, torch.device)):
            return example
        if self.trace.rows:
            found = of_shape(self, node.target, args, kwargs, example)
            if found is not None:
                return found
        value = scalars.build(self.builder, node.target, args, example)
        if value is None:
            raise self._refusal(node, f"{node.target} gives a {type(example).__name__}, which no kernel can use")
        return Value(self.builder, value.node, example)


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """The calls that results depend on, and those that may change a tensor in place. Others compute what is not used,
    and the shapes of their tensors need not fit."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found or not _changes_nothing(node):
            found.update(node.all_input_nodes, [node])
    return found


def _changes_nothing(node: fx.Node) -> bool:
    entry = find(node.target)
    return entry is not None and not entry[2] and not {"inplace", "out"} & node.kwargs.keys()


def _example_of(value: Any) -> Any:
    """A value's example; sizes and indices may be inside of tuples."""
    if isinstance(value, (Value, ShapeOf, Several)):
        return value.example
    return fx.node.map_aggregate(value, lambda each: each.example if isinstance(each, Value) else each)
