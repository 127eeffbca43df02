"""Factors that a whole row has in common, taken out of its sums: then a sum can run in an earlier pass.

The gradient of layer_norm needs the sum of grad * weight * r over the row, where r is 1 / the standard deviation. Taken
literally, it waits for r. As r * (the sum of grad * weight), which is how torch computes it, it runs in the first pass.
Divisors stay: grad * exp(x - m) / s is at most grad, and the sum without the division may be infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from ..expression import Interner, Node, Program, Rows, postorder
from ..functions import Builder, Value
from ..functions.core import of


class _Product(NamedTuple):
    """core * the product of `factors`; only the core differs within a row."""

    core: Node
    factors: Sequence[Node] = ()
    negative: bool = False


def without_common_factors(program: Program) -> Program:
    """The program with common factors taken out of the sums that can then run earlier."""
    assert program.rows is not None
    return _Rewriting(program.rows).program(program)


class _Rewriting:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.builder = Builder(Interner())
        self.depths: dict[Node, int] = {}
        self.varies: dict[Node, bool] = {}
        self.done: dict[Node, Node] = {}

    def program(self, program: Program) -> Program:
        for node in postorder(program.roots()):
            self.done[node] = self.rewritten(node)
        results = tuple(replace(each, expression=self.done[each.expression]) for each in program.results)
        return replace(program, results=results, checks=tuple(self.done[check] for check in program.checks))

    def rewritten(self, node: Node) -> Node:
        if node.function is None:
            return self.known(node)
        args = [self.done[arg] for arg in node.args]
        if node.function.name == "row_sum":
            product = self.product(args[0])
            if self.depths[product.core] < self.depths[args[0]]:
                return self.sum_of(product, node)
        if all(arg is old for arg, old in zip(args, node.args, strict=True)):
            return self.known(node)
        return self.known(self.builder.interner.call(node.function, args, node.dtype, node.line))

    def sum_of(self, product: _Product, node: Node) -> Node:
        self.builder.line = node.line
        value = of("row_sum", self.builder.value(product.core))
        for factor in product.factors:
            value = value * self.builder.value(factor)
        return self.entered(-value if product.negative else value)

    def product(self, node: Node) -> _Product:
        """What a node is a product of. One that is rounded to a half type is not taken apart."""
        name = node.function.name if node.function is not None else ""
        if node.dtype not in (torch.float32, torch.float64) or name not in ("mul", "neg"):
            return _Product(node)
        left = self.product(node.args[0])
        if name == "neg":
            return left._replace(negative=not left.negative)
        first, second = node.args
        if not self.varies[first]:
            right = self.product(second)
            return right._replace(factors=[first, *right.factors])
        if not self.varies[second]:
            return left._replace(factors=[*left.factors, second])
        right = self.product(second)
        if left.core is first and right.core is second:
            return _Product(node)
        self.builder.line = node.line
        core = self.builder.apply(name, self.builder.value(left.core), self.builder.value(right.core))
        return _Product(self.entered(core), [*left.factors, *right.factors], left.negative != right.negative)

    def entered(self, value: Value) -> Node:
        for node in postorder([value.node]):
            self.known(node)
        return value.node

    def known(self, node: Node) -> Node:
        """Enters how many passes a node waits for, and whether it differs within a row."""
        if node not in self.depths:
            reduces = node.function is not None and node.function.reduces
            needs_pass = reduces and node.function is not None and node.function.name != "row_at"
            self.depths[node] = max((self.depths[arg] for arg in node.args), default=0) + needs_pass
            if node.function is None:
                self.varies[node] = self.rows.varies(node)
            else:
                self.varies[node] = not reduces and any(self.varies[arg] for arg in node.args)
        return node
