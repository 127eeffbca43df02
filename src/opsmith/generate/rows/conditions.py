"""Which reductions only matter if an argument is such: those that a choice by the argument uses in one of its branches.

    where(label_smoothing > 0, label_smoothing * x.mean(-1), 0.0)

does not need the mean of x if there is no smoothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ..expression import Node, Program


class Condition(NamedTuple):
    test: Node
    holds: bool  # or does not


def conditions(program: Program, constants: set[Node]) -> dict[Node, Condition]:
    """The condition under which a reduction is used, for those that have one. `constants`: nodes of arguments alone."""
    needed: dict[Node, Condition | None] = dict.fromkeys(program.roots())
    for node in reversed(program.nodes()):
        own = needed[node]
        uses = [(arg, own) for arg in node.args]
        if own is None and node.function is not None and node.function.name == "select" and node.args[0] in constants:
            test, yes, no = node.args
            uses = [(test, None), (yes, Condition(test, True)), (no, Condition(test, False))]
        for arg, condition in uses:
            needed[arg] = condition if arg not in needed or needed[arg] == condition else None
    return {
        node: condition
        for node, condition in needed.items()
        if condition is not None and node.function is not None and node.function.reduces
    }
