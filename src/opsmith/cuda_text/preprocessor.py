"""The code of a file without comments and preprocessor lines; its macros and includes.

The conditions of #if are unknown here, so every branch is read. Where a branch alone does not close the brackets it
opens (two heads of one function, say), the branches do not fit together, and the first is read. `#if 0` is not code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .code import BRACKETS, Code, Range, paired
from .tokens import Token, is_comment, is_word, tokenized

_NEW_LINE = re.compile(r"(?<!\\)(?<!\\\r)\n")


@dataclass(frozen=True)
class Macro:
    """A #define: its name, its parameters and its body."""

    name: str
    parameters: tuple[str, ...]
    code: Code


@dataclass
class _Conditional:
    """An open #if: the ranges of tokens around it, and those in each branch."""

    outer: list[Range]
    branches: list[list[Range]] = field(default_factory=list)
    dead: list[list[Range]] = field(default_factory=list)  # branches that are never code
    settled: bool = False  # an earlier condition was `1`


class Preprocessed:
    """The parts of a file. `with_dead` adds what is in `#if 0` to the code, where its brackets are balanced."""

    def __init__(self, text: str, with_dead: bool = False) -> None:
        self._with_dead = with_dead
        self.comments: list[Token] = []
        self.macros: list[Macro] = []
        self.includes: list[str] = []
        self.directives: list[Range] = []  # where they begin and end in the text
        self._text = text
        self._texts, self._starts = tokenized(text)
        ranges = self._live()
        self.code = Code(
            [text for first, last in ranges for text in self._texts[first:last]],
            [start for first, last in ranges for start in self._starts[first:last]],
        )

    def _live(self) -> list[Range]:
        """The ranges of tokens that are code."""
        current: list[Range] = []
        opened: list[_Conditional] = []
        position = 0
        for index in [index for index, text in enumerate(self._texts) if text[0] in "#/"]:
            if index < position:  # inside a directive
                continue
            text = self._texts[index]
            if is_comment(text):
                self.comments.append(Token(text, self._starts[index]))
                end = index + 1
            elif text == "#" and self._is_directive(index):
                end = next(end for end in range(index + 1, len(self._texts) + 1) if self._begins_line(end))
            else:
                continue
            if position < index:
                current.append((position, index))
            if text == "#":
                current = self._directive(index, end, current, opened)
            position = end
        current.append((position, len(self._texts)))
        while opened:
            current = self._closed(opened.pop())
        return current

    def _end(self, index: int) -> int:
        return self._starts[index] + len(self._texts[index])

    def _begins_line(self, index: int) -> bool:
        return index in (0, len(self._texts)) or bool(
            _NEW_LINE.search(self._text, self._end(index - 1), self._starts[index])
        )

    def _is_directive(self, index: int) -> bool:
        """Whether a # is the first token of its line, except for comments."""
        while is_comment(self._texts[index - 1]) and not self._begins_line(index):
            index -= 1
        return self._begins_line(index)

    def _directive(self, first: int, last: int, current: list[Range], opened: list[_Conditional]) -> list[Range]:
        """Reads a directive; returns the ranges that the code after it belongs to."""
        self.directives.append((self._starts[first], self._end(last - 1)))
        indices = []
        for index in range(first + 1, last):
            if is_comment(self._texts[index]):
                self.comments.append(Token(self._texts[index], self._starts[index]))
            else:
                indices.append(index)
        words = [self._texts[index] for index in indices]
        name = words[0] if words else ""
        if name in ("if", "ifdef", "ifndef"):
            opened.append(_Conditional(current))
        if name in ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else") and opened:
            return _next_branch(opened[-1], words[1] if name in ("if", "elif") and len(words) == 2 else "")
        if name == "endif" and opened:
            return self._closed(opened.pop())
        if name == "include":
            self.includes.append("".join(words[1:]).strip('<>"'))
        elif name == "define" and len(words) > 1 and is_word(words[1]):
            self._define(indices[1], indices[2:])
        return current

    def _define(self, name: int, rest: list[int]) -> None:
        parameters: tuple[str, ...] = ()
        # `#define F(x)` has parameters, `#define F (x)` does not.
        if rest and self._texts[rest[0]] == "(" and self._starts[rest[0]] == self._end(name):
            end = next((at for at, index in enumerate(rest) if self._texts[index] == ")"), len(rest) - 1)
            words = [self._texts[index] for index in rest[1:end]]
            parameters = tuple(word for word in words if is_word(word) or word == "...")
            rest = rest[end + 1 :]
        body = Code([self._texts[index] for index in rest], [self._starts[index] for index in rest])
        self.macros.append(Macro(self._texts[name], parameters, body))

    def _closed(self, conditional: _Conditional) -> list[Range]:
        """Adds the branches that are read to the code around an #if; returns that code."""
        branches = conditional.branches
        if len(branches) > 1 and not all(map(self._is_balanced, branches)):
            del branches[1:]
        if self._with_dead:
            branches += filter(self._is_balanced, conditional.dead)
        for branch in branches:
            conditional.outer.extend(branch)
        return conditional.outer

    def _is_balanced(self, ranges: list[Range]) -> bool:
        texts = [text for first, last in ranges for text in self._texts[first:last]]
        return len(paired(texts)) == sum(text in BRACKETS for text in texts)


def _next_branch(conditional: _Conditional, condition: str) -> list[Range]:
    is_dead = conditional.settled or condition in ("0", "false")
    branches = conditional.dead if is_dead else conditional.branches
    branches.append([])
    conditional.settled = conditional.settled or condition in ("1", "true")
    return branches[-1]
