"""CUDA and C++ sources that are strings of a Python file: what opsmith.cuda_source and load_inline are given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_IS_SOURCE = re.compile(r"__global__\s|<<<.*>>>|#include\s*[<\"](?:torch|ATen|c10|opsmith|cuda)", re.DOTALL)


@dataclass(frozen=True)
class Embedded:
    """A source, and where the string that it is begins. `exact`: each of its lines is a line of the file."""

    text: str
    line: int
    column: int
    exact: bool

    def place(self, line: int, column: int) -> tuple[int, int]:
        """A place in the source as one in the file; the string's own where its lines are not the file's."""
        if not self.exact:
            return self.line, self.column
        return self.line + line - 1, column if line > 1 else column + self.column - 1


def sources(python: str) -> Iterator[Embedded]:
    """The strings that are CUDA or C++ sources. None of a file that Python cannot read."""
    try:
        tree = ast.parse(python)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = python.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # as Python counts them
    passed_over: set[int] = set()
    for node in ast.walk(tree):  # a parent comes before its children
        if isinstance(node, ast.JoinedStr):
            passed_over.update(map(id, node.values))  # pieces of a source, not one
        elif isinstance(node, ast.Expr):
            passed_over.add(id(node.value))  # a docstring
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed_over:
            if _IS_SOURCE.search(node.value) and node.end_lineno is not None:
                line = lines[node.lineno - 1]
                column = len(line.encode()[: node.col_offset].decode(errors="replace"))  # ast counts bytes
                opening = re.match(r"\w*(?:\"\"\"|'''|\"|')", line[column:])
                width = len(opening[0]) if opening else 0
                exact = node.value.count("\n") == node.end_lineno - node.lineno
                yield Embedded(node.value, node.lineno, column + width + 1, exact)
