"""C++ text as tokens: words, numbers, literals, punctuation and comments.

Any text is accepted: an unclosed comment ends with the file, an unclosed literal with its line. A backslash that joins
two lines counts as white space.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, chain
from operator import add
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(
      [(){}\[\];,]
    # Before words, which would match the prefix of a literal.
    | (?=[uULR"]) (?:u8|[uUL])? (?: R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)
                                  | "[^"\\\n]*(?:\\.[^"\\\n]*)*"? )
    | (?:[^\W\d]|\$)[\w$]*
    | //[^\\\n]*(?:\\(?:\r\n|.)?[^\\\n]*)* | /\*.*?(?:\*/|\Z)
    | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
    | '[^'\\\n]*(?:\\.[^'\\\n]*)*'?
    # `>` stays alone: two or three may close templates or a launch. `<<<` always begins a launch.
    | <<<|<<=|<=>|<<|<=|>=|->\*?|::|\.\.\.|\+\+|--|&&|\|\||[-+*/%&|^=!]=|\#\#
    | [^\s\\] | \\(?!\r?\n)
    )""",
    re.DOTALL | re.VERBOSE,
)
_STRING = re.compile(r'(?:u8|[uUL])?R?"')


class Token(NamedTuple):
    """text[start : start + len(token.text)] == token.text."""

    text: str
    start: int


def tokenized(text: str) -> tuple[list[str], list[int]]:
    """The tokens of a text, and where each of them starts."""
    pieces = _TOKEN.split(text)  # by threes: white space, a token, the delimiter if it is a raw string
    gaps, tokens = pieces[::3], pieces[1::3]
    starts = accumulate(map(add, map(len, gaps), chain((0,), map(len, tokens))))
    return tokens, list(starts)[: len(tokens)]


def without_comments(text: str) -> str:
    """The text with spaces in place of comments; everything else stays where it was."""
    return _TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if is_comment(found[0]) else found[0], text)


def is_word(token: str) -> bool:
    return token.isidentifier() or ("$" in token and token.replace("$", "_").isidentifier())


def is_number(token: str) -> bool:
    return token[:1].isdecimal() or (token[:1] == "." and token[1:2].isdecimal())


def is_string(token: str) -> bool:
    return _STRING.match(token) is not None


def is_comment(token: str) -> bool:
    return token.startswith(("//", "/*"))


class Lines:
    """Where the lines of a text begin."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def line(self, start: int) -> int:
        """The line of a character, from 1."""
        return bisect_right(self._starts, start)

    def place(self, start: int) -> tuple[int, int]:
        """The line and the column of a character, both from 1."""
        line = self.line(start)
        return line, start - self._starts[line - 1] + 1
