"""Which tokens are code: comments and directives set aside, macros kept apart, the branches of #if settled by brackets.

What a condition is cannot be known here, so every branch is read. Only where a branch alone does not close what it
opens (two heads of one function, say) would the branches not make sense together: then the first is read. `#if 0` is no
code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .tokens import COMMENT, DIRECTIVE, PUNCTUATION, WORD, Token, tokenized, tokenized_part

_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Macro:
    """A #define: what stands in its place, as tokens at their own places in the file. `start` is where its name is."""

    name: str
    start: int
    parameters: tuple[str, ...]
    body: tuple[Token, ...]


@dataclass
class Preprocessed:
    """A file, taken apart."""

    code: list[Token] = field(default_factory=list)
    comments: list[Token] = field(default_factory=list)
    macros: list[Macro] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)  # of directives: where they begin and end


@dataclass
class _Conditional:
    """An #if that is open: its branches, and which of them are known not to be code."""

    outer: list[Token]
    branches: list[list[Token]] = field(default_factory=lambda: [[]])
    dead: set[int] = field(default_factory=set)
    settled: bool = False  # a condition before was `1`


def preprocessed(text: str) -> Preprocessed:
    """The parts of a file."""
    found = Preprocessed()
    for token in _live(text, tokenized(text), found):
        if token.kind == DIRECTIVE:
            _define_or_include(text, token, found)
        else:
            found.code.append(token)
    return found


def _live(text: str, tokens: Iterable[Token], found: Preprocessed) -> list[Token]:
    """Tokens that are code, and directives that are no conditionals."""
    current: list[Token] = []
    opened: list[_Conditional] = []
    for token in tokens:
        if token.kind == COMMENT:
            found.comments.append(token)
            continue
        if token.kind != DIRECTIVE:
            current.append(token)
            continue
        found.spans.append((token.start, token.start + len(token.text)))
        words = tokenized_part(text, token.start + 1, token.start + len(token.text))
        found.comments += [word for word in words if word.kind == COMMENT]
        words = [word for word in words if word.kind != COMMENT]
        name = words[0].text if words else ""
        condition = words[1].text if len(words) == 2 else ""
        if name in ("if", "ifdef", "ifndef"):
            opened.append(_Conditional(current))
            current = opened[-1].branches[0]
            _judge(opened[-1], condition if name == "if" else "")
        elif name in ("elif", "elifdef", "elifndef", "else") and opened:
            current = []
            opened[-1].branches.append(current)
            _judge(opened[-1], condition if name == "elif" else "")
        elif name == "endif" and opened:
            current = _closed(opened.pop())
        else:
            current.append(token)
    while opened:
        current = _closed(opened.pop())
    return current


def _judge(conditional: _Conditional, condition: str) -> None:
    if conditional.settled or condition in ("0", "false"):
        conditional.dead.add(len(conditional.branches) - 1)
    conditional.settled = conditional.settled or condition in ("1", "true")


def _closed(conditional: _Conditional) -> list[Token]:
    branches = [branch for number, branch in enumerate(conditional.branches) if number not in conditional.dead]
    if not all(map(_balanced, branches)):
        del branches[1:]
    return [*conditional.outer, *(token for branch in branches for token in branch)]


def _balanced(tokens: Sequence[Token]) -> bool:
    depth = 0
    for token in tokens:
        if token.kind == PUNCTUATION:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if depth < 0:
                return False
    return depth == 0


def _define_or_include(text: str, directive: Token, found: Preprocessed) -> None:
    words = tokenized_part(text, directive.start + 1, directive.start + len(directive.text))
    words = [word for word in words if word.kind != COMMENT]
    if len(words) < 2:
        return
    if words[0].text == "include":
        found.includes.append("".join(word.text for word in words[1:]).strip('<>"'))
    elif words[0].text == "define" and words[1].kind == WORD:
        name, rest = words[1], words[2:]
        parameters: tuple[str, ...] = ()
        # `#define F(x)` takes arguments, `#define F (x)` does not.
        if rest and rest[0].text == "(" and rest[0].start == name.start + len(name.text):
            end = next((index for index, word in enumerate(rest) if word.text == ")"), len(rest) - 1)
            parameters = tuple(word.text for word in rest[1:end] if word.kind == WORD or word.text == "...")
            rest = rest[end + 1 :]
        found.macros.append(Macro(name.text, name.start, parameters, tuple(rest)))
