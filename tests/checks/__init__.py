from __future__ import annotations

import ast
from pathlib import Path


def decorated(file: Path, *decorators: str) -> list[str]:
    """The functions under one of these decorators, read from the text: importing the file would declare its ops."""
    calls = tuple(f"{name}(" for name in decorators)
    functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [each.name for each in functions if any(ast.unparse(d).startswith(calls) for d in each.decorator_list)]
