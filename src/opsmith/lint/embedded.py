"""CUDA and C++ sources in strings of a Python file, as passed to opsmith.cuda_source and load_inline."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

_IS_SOURCE = re.compile(r"__global__\s|<<<.*>>>|#include\s*[<\"](?:torch|ATen|c10|opsmith|cuda)", re.DOTALL)

Place = Callable[[int, int], tuple[int, int]]
"""From a line and a column in a source to those in its file."""


def embedded_sources(python: str) -> Iterator[tuple[str, Place]]:
    """The strings that are CUDA or C++ sources. None if Python cannot parse the file."""
    try:
        tree = ast.parse(python)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = python.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # as Python counts them
    skipped: set[int] = set()
    for node in ast.walk(tree):  # a parent comes before its children
        if isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))  # pieces of a source
        elif isinstance(node, ast.Expr):
            skipped.add(id(node.value))  # a docstring
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            if _IS_SOURCE.search(node.value):
                yield node.value, _place_in(node, node.value.count("\n"), lines[node.lineno - 1])


def _place_in(node: ast.Constant, newlines: int, line: str) -> Place:
    """Of a string that begins in a line. If its lines are not lines of the file, every place is its beginning."""
    column = len(line.encode()[: node.col_offset].decode(errors="replace"))  # ast counts bytes
    opening = re.match(r"\w*(?:\"\"\"|'''|\"|')", line[column:])
    column += len(opening[0]) if opening else 0
    if node.end_lineno is None or newlines != node.end_lineno - node.lineno:
        return lambda _line, _column: (node.lineno, column + 1)
    return lambda line, at: (node.lineno + line - 1, at if line > 1 else at + column)
