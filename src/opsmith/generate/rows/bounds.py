"""What is known about the range of an element, from how it is computed."""

from __future__ import annotations

from ..expression import Constant, Node, Program


def never_positive(program: Program) -> dict[Node, bool]:
    """The exponentials of numbers that are at most zero: of elements less the largest of their row or their logsumexp.

    True for those that are only summed over the row: one of them is 1, so what is below 2^-126 does not count. (If the
    largest is infinite, logsumexp subtracts zero instead, and its sum is infinite or zero whatever its other terms.)"""
    exponentials = [node for node in program.nodes() if _is(node, "exp") and _is(node.args[0], "sub")]
    users: dict[Node, list[Node]] = {node: [] for node in exponentials}
    for node in program.nodes():
        for arg in node.args:
            if arg in users:
                users[arg].append(node)
    results = {result.expression for result in program.results}
    found: dict[Node, bool] = {}
    for node in exponentials:
        element, highest = node.args[0].args
        only_summed = node not in results and all(_is(user, "row_sum") for user in users[node])
        if only_summed and _is(highest, "select"):
            test, zero, otherwise = highest.args
            if _is(test, "is_inf") and test.args[0] is otherwise and isinstance(zero, Constant) and zero.value == 0:
                highest = otherwise
        if _is(highest, "row_max") and highest.args[0] is element:
            found[node] = only_summed
        elif _is_logsumexp(highest, element):
            found[node] = False
    return found


def _is_logsumexp(node: Node, element: Node) -> bool:
    """Whether a node is the logarithm of the sum of an element's exponentials: at least the largest of the elements."""
    shift = None
    if _is(node, "add"):
        node, shift = node.args
    if not _is(node, "log") or not _is(node.args[0], "row_sum") or not _is(node.args[0].args[0], "exp"):
        return False
    (summed,) = node.args[0].args[0].args
    return summed is element if shift is None else _is(summed, "sub") and summed.args == (element, shift)


def _is(node: Node, name: str) -> bool:
    return node.function is not None and node.function.name == name
