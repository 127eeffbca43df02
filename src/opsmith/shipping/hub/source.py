"""The source text of a function, lambda or class: the names it takes from outside, and edits that keep the rest."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ...errors import SourceLine
from ...reference.signature import closed_over

_POSTPONED = annotations.compiler_flag  # annotations are text, as they are in the file that is written
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_STORES = {"STORE_NAME", "IMPORT_NAME"}


class UnreadableError(Exception):
    """Why the text of something cannot be read."""


@dataclass
class Edit:
    """`node`, or one of its names, replaced by a text."""

    node: ast.expr
    text: str


@dataclass(frozen=True)
class Source:
    """The text of one definition without indentation, parsed; `scope`: the variables around it, by name."""

    file: str
    first_line: int
    text: str
    tree: ast.Module
    scope: dict[str, Any]

    def line(self, node: ast.AST | None = None) -> SourceLine:
        below = getattr(node, "lineno", 1) - 1
        return SourceLine.at(self.file, self.first_line + below)

    def names(self) -> set[str]:
        """The names that running it takes from outside; annotations are not run."""
        code = compile(self.tree, self.file, "exec", flags=_POSTPONED, dont_inherit=True)
        found: set[str] = set()
        for part in _codes(code):
            stored = {each.argval for each in dis.get_instructions(part) if each.opname in _STORES}
            loaded = {each.argval for each in dis.get_instructions(part) if each.opname in _LOADS}
            found |= loaded - (stored if part is not code else set())
        return {name for name in found if not _is_dunder(name) and (name in self.scope or not hasattr(builtins, name))}

    def annotated(self) -> set[str]:
        """The names in its annotations."""
        held = [
            each
            for node in ast.walk(self.tree)
            for each in (getattr(node, "annotation", None), getattr(node, "returns", None))
            if each is not None
        ]
        return {node.id for each in held for node in ast.walk(each) if isinstance(node, ast.Name)}

    def uses(self, name: str) -> list[ast.Name]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node.id == name]

    def binds(self, name: str) -> bool:
        """Whether a name is also that of a variable or a parameter somewhere in it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.arg) and node.arg == name:
                return True
            if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
                return True
        return False

    def edited(self, edits: Sequence[Edit], name: str | None = None) -> str:
        """The text after these edits, and with another name for what it defines."""
        lines = [line.encode() for line in self.text.splitlines(keepends=True)]
        ordered = sorted(edits, key=lambda edit: (edit.node.lineno, edit.node.col_offset), reverse=True)
        for edit in ordered:
            first, last = edit.node.lineno - 1, (edit.node.end_lineno or edit.node.lineno) - 1
            before = lines[first][: edit.node.col_offset]
            after = lines[last][edit.node.end_col_offset :]
            lines[first : last + 1] = [before + edit.text.encode() + after]
        text = b"".join(lines).decode()
        if name is not None:
            text = re.sub(r"^((?:async )?(?:def|class)[ \t]+)\w+", rf"\g<1>{name}", text, count=1, flags=re.MULTILINE)
        return text.strip("\n") + "\n"


def source_of(thing: Any, stripped: Callable[[Any], bool]) -> Source:
    """The source of a function, lambda or class, without the decorators whose value `stripped` accepts.

    Raises UnreadableError."""
    thing = inspect.unwrap(thing)
    scope = _scope(thing)
    try:
        if getattr(thing, "__name__", "") == "<lambda>":
            return _lambda_source(thing, scope)
        lines, first = inspect.getsourcelines(thing)
        file = inspect.getsourcefile(thing) or "<unknown>"
    except (OSError, TypeError) as error:
        raise UnreadableError(f"its source cannot be read ({error}); put it into a file") from None
    text = _dedented("".join(lines))
    tree = ast.parse(text)
    node = tree.body[0]
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    starts = [each.lineno for each in decorators] + [_definition_line(node, text)]
    kept = text.splitlines(keepends=True)
    for index, each in enumerate(decorators):
        if stripped(_value_of(each, scope)):
            for number in range(starts[index] - 1, starts[index + 1] - 1):
                kept[number] = "\n"
    text = "".join(kept)
    return Source(file, first, text, ast.parse(text), scope)


def _scope(thing: Any) -> dict[str, Any]:
    if inspect.isclass(thing):
        return dict(vars(inspect.getmodule(thing) or builtins))
    return {**getattr(thing, "__globals__", {}), **closed_over(thing)}


def _lambda_source(thing: Any, scope: dict[str, Any]) -> Source:
    code = thing.__code__
    text = "".join(inspect.findsource(thing)[0])
    found = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno
    ]
    same = [node for node in found if _compiled(node).co_code == code.co_code] if len(found) > 1 else found
    if len(same) != 1:
        raise UnreadableError("several lambdas are on its line; define it by `def`")
    segment = ast.get_source_segment(text, same[0]) or ""
    text = f"({segment})\n"
    return Source(code.co_filename, code.co_firstlineno, text, ast.parse(text), scope)


def _compiled(node: ast.Lambda) -> CodeType:
    whole = compile(ast.Expression(node), "", "eval")
    return next(each for each in whole.co_consts if isinstance(each, CodeType))


def _dedented(text: str) -> str:
    """The text at the margin. If that would change a string in it, it is written again from its tree."""
    if not text[:1].isspace():
        return text
    shifted = textwrap.dedent(text)
    original = ast.parse(f"if True:\n{text}").body[0]
    assert isinstance(original, ast.If)
    try:
        if ast.dump(ast.parse(shifted).body[0]) == ast.dump(original.body[0]):
            return shifted
    except SyntaxError:
        pass
    return ast.unparse(original.body[0]) + "\n"


def indented(text: str) -> str:
    """A definition as the member of a class, with every string in it as it was."""
    shifted = textwrap.indent(text, "    ")
    original = ast.parse(text).body[0]
    moved = ast.parse(f"if True:\n{shifted}").body[0]
    assert isinstance(moved, ast.If)
    return shifted if ast.dump(moved.body[0]) == ast.dump(original) else textwrap.indent(ast.unparse(original), "    ")


def _definition_line(node: ast.stmt, text: str) -> int:
    """The line of `def` or `class`, below the decorators."""
    lines = text.splitlines()
    number = node.lineno
    while not re.match(r"\s*(async\s+def|def|class)\b", lines[number - 1]):
        number += 1
    return number


def _value_of(node: ast.expr, scope: dict[str, Any]) -> Any:
    """What a decorator is, without calling it; None if it is not found."""
    if isinstance(node, ast.Call):
        return _value_of(node.func, scope)
    if isinstance(node, ast.Attribute):
        owner = _value_of(node.value, scope)
        return owner if type(owner).__module__.startswith("opsmith.") else getattr(owner, node.attr, None)
    return scope.get(node.id) if isinstance(node, ast.Name) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
