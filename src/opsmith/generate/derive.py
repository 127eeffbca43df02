"""The derivative of expressions: adjoints from the results back to the inputs, by each function's own rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .expression import Input, Interner, Node, postorder
from .functions import Builder, Value
from .functions.core import CAST
from .text import computed_in


def pullback(
    interner: Interner, results: Sequence[Node], grads: Sequence[Node | None], wanted: Sequence[Input]
) -> list[Node]:
    """The gradient of each wanted input, given the gradients of the results (None: it has none). Zero if the results do
    not depend on an input, or only by steps."""
    builder = Builder(interner)
    adjoints: dict[Node, Value] = {}

    def send(node: Node, grad: Value) -> None:
        builder.line = node.line
        before = adjoints.get(node)
        adjoints[node] = grad if before is None else _sum(builder, before, grad)

    for result, grad in zip(results, grads, strict=True):
        if grad is not None and result.dtype.is_floating_point:
            send(result, builder.cast(builder.value(grad), result.dtype))
    reached = _depending_on(results, wanted)
    for node in reversed(list(postorder(results))):
        if node.function is None or node not in adjoints or node not in reached or node.function.derivative is None:
            continue
        builder.line = node.line
        values = [builder.value(arg) for arg in node.args]
        returned = node.function.derivative(adjoints[node], *values, builder.value(node))
        for arg, grad_value in zip(node.args, returned, strict=True):
            if grad_value is not None and arg in reached and arg.dtype.is_floating_point:
                send(arg, builder.cast(grad_value, arg.dtype))
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
