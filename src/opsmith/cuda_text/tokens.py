"""C++ text as tokens: words, numbers, literals, punctuation, comments and preprocessor lines, each with its place.

Any text is taken: a literal or a comment that never ends is one token up to where it can be told to end. Backslashes
that join two lines are white space.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

WORD, NUMBER, STRING, CHARACTER, PUNCTUATION, COMMENT, DIRECTIVE = range(7)

_PARTS = (
    # Before words, which would take the prefix of a literal.
    r'(?P<string>(?:u8|[uUL])?(?:R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)|"(?:\\.|[^"\\\n])*"?))',
    r"(?P<word>[^\W\d][\w$]*|\$[\w$]*)",
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))",
    r"(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)",
    r"(?P<character>'(?:\\.|[^'\\\n])*'?)",
    # `>` stays alone, for two or three may close templates or a launch; `<<<` begins a launch and nothing else.
    r"(?P<punctuation><<<|<<=|<=>|<<|<=|>=|->\*?|::|\.\.\.|\+\+|--|&&|\|\||[-+*/%&|^=!]=|##|[^\s])",
)
_TOKEN = re.compile(rf"\s*(?:{'|'.join(_PARTS)})", re.DOTALL)
_DIRECTIVE = re.compile(r'#(?:\\\n|/\*.*?(?:\*/|\Z)|//(?:\\\n|[^\n])*|"(?:\\.|[^"\\\n])*"?|[^\n])*', re.DOTALL)
_GROUPS = {
    "string": STRING,
    "word": WORD,
    "comment": COMMENT,
    "number": NUMBER,
    "character": CHARACTER,
    "punctuation": PUNCTUATION,
}


class Token(NamedTuple):
    """text[start : start + len(token.text)] == token.text."""

    kind: int
    text: str
    start: int


def tokenized(text: str) -> list[Token]:
    """Every token of a file. A directive, from its # to the end of its line, is one."""
    return list(_tokens(text, 0, len(text), directives=True))


def tokenized_part(text: str, start: int, end: int) -> list[Token]:
    """The tokens of text[start:end] where no directive can be, such as inside a directive."""
    return list(_tokens(text, start, end, directives=False))


def _tokens(text: str, position: int, end: int, directives: bool) -> Iterator[Token]:
    match, line_is_blank = _TOKEN.match, True
    seen = position
    while found := match(text, position, end):
        group = found.lastgroup
        assert group is not None
        kind, start = _GROUPS[group], found.start(group)
        position = found.end()
        if kind == PUNCTUATION:
            symbol = found[group]
            if symbol == "#" and directives and (line_is_blank or "\n" in text[seen:start]):
                directive = _DIRECTIVE.match(text, start, end)
                assert directive is not None
                position = seen = directive.end()
                line_is_blank = False
                yield Token(DIRECTIVE, directive[0], start)
                continue
            if symbol == "\\" and text[position : position + 1] == "\n":
                continue
        if kind != COMMENT:
            line_is_blank = False
            seen = position
        yield Token(kind, found[group], start)


class Lines:
    """Where the lines of a text begin."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def place(self, start: int) -> tuple[int, int]:
        """The line and the column of a character, both from 1."""
        line = bisect_right(self._starts, start)
        return line, start - self._starts[line - 1] + 1
