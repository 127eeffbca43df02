"""A trace for given dtypes as expressions.

torch itself decides every dtype: each call of the trace is run on tensors of two elements (or none dimension, where the
argument has none), so promotion is torch's by construction. Half types are computed with as float32; what dtype the
results then have is asked of torch with the true dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from ..errors import NotPointwiseError, UndeclaredMutationError
from ..reference.signature import Kind
from . import scalars
from .expression import Interner, Node
from .functions import Builder, Call, Value, find
from .names import safe
from .text import HALF, SCALAR_TYPES, computed_in
from .trace import Trace, told


class TensorKind(NamedTuple):
    """What promotion sees of a tensor."""

    dtype: torch.dtype
    zero_dim: bool


@dataclass(frozen=True)
class Specialised:
    """What an operator computes for tensors of certain kinds, absent ones None."""

    kinds: tuple[TensorKind | None, ...]
    results: tuple[Node, ...]
    dtypes: tuple[torch.dtype, ...]  # of the results in memory
    shaped_by: tuple[frozenset[int], ...]  # the slots that give each result its shape, and what must have the same
    interner: Interner


def specialise(trace: Trace, kinds: Sequence[TensorKind | None]) -> Specialised:
    for kind in kinds:
        if kind is not None and kind.dtype not in SCALAR_TYPES:
            raise UnsupportedDtype(kind.dtype)
    with torch.no_grad(), torch._C._DisableAutocast():
        run = _Run(trace, kinds)
        returned = run.results()
        dtypes = [value.example.dtype for value in returned]
        if any(kind is not None and kind.dtype in HALF for kind in kinds):
            dtypes = _true_dtypes(trace, kinds)
    for dtype in dtypes:
        if dtype not in SCALAR_TYPES:
            raise UnsupportedDtype(dtype)
    return Specialised(
        tuple(kinds),
        tuple(value.node for value in returned),
        tuple(dtypes),
        (*(run.shaped_by[id(value)] for value in returned), *run.must_not_grow),
        run.builder.interner,
    )


class RefusedByTorch(NotPointwiseError):
    """torch does not take these dtypes for a function; it may take others."""

    def __init__(self, message: str) -> None:
        TypeError.__init__(self, message)


class UnsupportedDtype(Exception):
    """A dtype that no kernel is generated for, complex numbers above all: the reference runs."""


def _example(kind: TensorKind, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(() if kind.zero_dim else (2,), 1 if not dtype.is_floating_point else 0.5, dtype=dtype)


def _true_dtypes(trace: Trace, kinds: Sequence[TensorKind | None]) -> list[torch.dtype]:
    """The dtypes of the results for these very dtypes, half types included."""
    values: dict[fx.Node, Any] = {}
    slots = iter(range(len(kinds)))
    positions = _symbolic_positions(trace)
    inputs: dict[int, torch.Tensor] = {}
    for node in trace.graph.nodes:
        if node.op == "placeholder":
            argument = trace.signature.arguments[next(positions)]
            if argument.is_tensor:
                slot = next(slots)
                kind = kinds[slot]
                values[node] = None if kind is None else _example(kind, kind.dtype)
                if kind is not None:
                    inputs[slot] = values[node]
            else:
                values[node] = 0.5 if argument.type == "float" else 1
        elif node.op == "output":
            if trace.signature.mutated:
                tensors = [argument for argument in trace.signature.arguments if argument.is_tensor]
                return [inputs[i].dtype for i, argument in enumerate(tensors) if argument.mutated]
            returned = fx.node.map_arg(node.args[0], values.__getitem__)
            return [r.dtype for r in (returned if isinstance(returned, (tuple, list)) else (returned,))]
        else:
            args = fx.node.map_arg(node.args, values.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
            values[node] = _called(node, args, kwargs)
    raise AssertionError("a graph has an output")


def _called(node: fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    try:
        return node.target(*args, **kwargs)
    except ValueError:
        if not any(isinstance(arg, torch.Tensor) for arg in args):
            return 0.5  # a function of numbers whose domain the example lies outside of
        raise


def _symbolic_positions(trace: Trace) -> Any:
    placeholders = [node for node in trace.graph.nodes if node.op == "placeholder"]
    return iter([int(str(node.target).split("_")[1]) for node in placeholders])


class _Run:
    """A walk through the trace that runs each call on small tensors and builds its expression."""

    def __init__(self, trace: Trace, kinds: Sequence[TensorKind | None]) -> None:
        self.trace = trace
        self.builder = Builder(Interner())
        self.values: dict[fx.Node, Any] = {}
        self.roots: dict[fx.Node, fx.Node] = {}  # what an in-place call changed, for the value it returned
        self.inputs: dict[fx.Node, str] = {}
        self.shaped_by: dict[int, frozenset[int]] = {}
        self.must_not_grow: list[frozenset[int]] = []  # what gives those values their shape that are changed in place
        self._keep: list[Value] = []  # so that identities stay unique
        self._shared: set[fx.Node] = set()  # values that are, or may be, one memory with another
        self._place(kinds)

    def _place(self, kinds: Sequence[TensorKind | None]) -> None:
        slot = 0
        placeholders = [node for node in self.trace.graph.nodes if node.op == "placeholder"]
        symbolic = dict(zip(_symbolic_positions(self.trace), placeholders, strict=True))
        for position, argument in enumerate(self.trace.signature.arguments):
            node = symbolic.get(position)
            if argument.is_tensor:
                if node is not None:
                    kind = kinds[slot]
                    assert kind is not None
                    dtype = computed_in(kind.dtype)
                    leaf = self.builder.interner.input(slot, dtype)
                    self._set(node, Value(self.builder, leaf, _example(kind, dtype)), frozenset([slot]))
                    self.inputs[node] = argument.name
                slot += 1
            elif node is not None:
                assert argument.kind is Kind.VALUE
                dtype = torch.float64 if argument.type == "float" else torch.int64
                name = safe([other.name for other in self.trace.signature.arguments])[position]
                leaf_scalar = self.builder.interner.scalar(name, position, dtype)
                example = 0.5 if argument.type == "float" else 1
                self._set(node, Value(self.builder, leaf_scalar, example), frozenset())

    def _set(self, node: fx.Node, value: Any, slots: frozenset[int]) -> None:
        self.values[node] = value
        if isinstance(value, Value):
            self.shaped_by[id(value)] = slots
            self._keep.append(value)

    def results(self) -> list[Value]:
        for node in self.trace.graph.nodes:
            if node.op in ("call_function", "call_method"):
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
            found = {name: self.values[placeholder] for placeholder, name in self.inputs.items() if name in mutated}
            return [found[argument.name] for argument in signature.mutated]
        returned: Any = node.args[0]
        listed = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        values = [self._value(each) if isinstance(each, fx.Node) else each for each in listed]
        line = node.meta.get("line")
        if len(values) != len(signature.results):
            raise self.trace.refusal(
                f"it returns {len(values)} results, its annotation says {len(signature.results)}", line
            )
        for value in values:
            if not isinstance(value, Value) or not isinstance(value.example, torch.Tensor):
                raise self.trace.refusal("it returns something that is not a tensor", line)
        return values

    def _call(self, node: fx.Node) -> None:
        line = node.meta.get("line")
        args = fx.node.map_arg(node.args, lambda n: self._value(n))
        kwargs = fx.node.map_arg(node.kwargs, lambda n: self._value(n))
        examples = [_example_of(arg) for arg in args]
        keywords = {key: _example_of(arg) for key, arg in kwargs.items()}
        try:
            example = _called(node, examples, keywords)
        except Exception as error:
            raise RefusedByTorch(
                str(self.trace.refusal(f"torch refuses it ({str(error).splitlines()[0]})", line))
            ) from error
        self.builder.line = line
        try:
            if not isinstance(example, torch.Tensor):
                self._set(node, self._plain(node, args, example), frozenset())
                return
            entry = find(node.target)
            if entry is None:
                raise self.trace.refusal(f"{node.target} of a tensor is no elementwise function", line)
            translation, inplace = entry
            call = Call(self.builder, example.dtype)
            try:
                value = call.result(translation.build(call, *args, **kwargs))
            except (TypeError, AssertionError, KeyError) as error:
                words = f"{translation.name} is not taken with these arguments ({error})"
                raise self.trace.refusal(words, line) from error
            given = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Value)]
            slots = frozenset().union(*(self.shaped_by[id(arg)] for arg in given))
            fresh = Value(self.builder, value.node, example)
            if not inplace:
                self._note_shared(node, example)
            if inplace or kwargs.get("inplace"):
                self._change(node, fresh, slots)
            else:
                self._set(node, fresh, slots)
        finally:
            self.builder.line = None

    def _note_shared(self, node: fx.Node, example: torch.Tensor) -> None:
        """A cast to the dtype it has, or detach, gives the same memory under another name."""
        for other in node.all_input_nodes:
            value = self._value(other)
            if isinstance(value, Value) and isinstance(value.example, torch.Tensor):
                if value.example.data_ptr() == example.data_ptr():
                    self._shared |= {node, self.roots.get(other, other)}

    def _change(self, node: fx.Node, value: Value, slots: frozenset[int]) -> None:
        target = node.args[0] if node.args else node.kwargs["input"]
        assert isinstance(target, fx.Node)
        root = self.roots.get(target, target)
        name = self.inputs.get(root)
        if name is not None and name not in {argument.name for argument in self.trace.signature.mutated}:
            culprit = f"the reference {self.trace.function.__name__} ({told(node.meta.get('line'))})"
            raise UndeclaredMutationError(self.trace.name, name, culprit)
        if root in self._shared:
            what = "it changes in place what may be one memory with another value (write y = y + 1, or clone it before)"
            raise self.trace.refusal(what, node.meta.get("line"))
        before = self.shaped_by[id(self.values[root])]
        if not slots <= before:
            self.must_not_grow.append(before)
        self.roots[node] = root
        self._set(root, value, slots | before)

    def _plain(self, node: fx.Node, args: Any, example: Any) -> Any:
        """A call that gives no tensor: a number, or a dtype."""
        if isinstance(example, torch.dtype):
            return example
        value = scalars.build(self.builder, node.target, args, example)
        if value is None:
            raise self.trace.refusal(
                f"{node.target} gives a {type(example).__name__}, which no kernel can use", node.meta.get("line")
            )
        return Value(self.builder, value.node, example)


def _example_of(value: Any) -> Any:
    return value.example if isinstance(value, Value) else value
