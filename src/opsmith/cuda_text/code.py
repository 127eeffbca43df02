"""Code: tokens with their brackets paired, from which calls, arguments and statements can be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from .tokens import NUMBER, STRING, WORD, Token

_PARTNERS = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {")": "(", "]": "[", "}": "{"}
_NOT_IN_TEMPLATE_ARGUMENTS = {";", "{", "}", "&&", "||", "?", ":", "<<<", "<=", ">=", "==", "!=", "=", ")", "]"}
_AROUND_COMPARISONS = {";", "{", "}", "(", ")", "[", "]", ",", "&&", "||", "=", "return", "?", ":", "!"}
_LONGEST_QUOTE = 60
_LONGEST_TEMPLATE = 500
"""Tokens. Where no `>` is found within so many, a `<` compares: keeps the search short in what is no C++ at all."""
_COMPARISONS = {"<", ">", "<=", ">=", "==", "!="}

Range = tuple[int, int]
"""Numbers of tokens: the first, and the one after the last."""


class Call(NamedTuple):
    """`name(a, b)` or `name<T>(a, b)`, by the numbers of tokens: its name, its brackets, its arguments."""

    name: int
    opening: int
    closing: int
    arguments: list[Range]


class Code:
    """A run of tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.texts = [token.text for token in tokens]
        self.partner = _paired(self.texts)
        """By the number of a bracket that of its partner, or -1; -1 for what is no bracket."""

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def words(self) -> dict[str, list[int]]:
        """Where each word stands."""
        found: dict[str, list[int]] = {}
        for index, token in enumerate(self.tokens):
            if token.kind == WORD:
                found.setdefault(token.text, []).append(index)
        return found

    def at(self, index: int) -> str:
        """The text of a token, or '' beyond the ends."""
        return self.texts[index] if 0 <= index < len(self.texts) else ""

    def is_word(self, index: int) -> bool:
        return 0 <= index < len(self.texts) and self.tokens[index].kind == WORD

    def is_number(self, index: int) -> bool:
        return 0 <= index < len(self.texts) and self.tokens[index].kind == NUMBER

    def is_string(self, index: int) -> bool:
        return 0 <= index < len(self.texts) and self.tokens[index].kind == STRING

    def adjacent(self, index: int) -> bool:
        """Whether no white space is between a token and the next."""
        token, after = self.tokens[index], self.tokens[index + 1]
        return token.start + len(token.text) == after.start

    def closing(self, opening: int, end: int) -> int:
        """Where a bracket closes, and `end` where it does not or only beyond."""
        partner = self.partner[opening]
        return partner if opening < partner < end else end

    def spelled(self, first: int, last: int) -> str:
        """The tokens of a range as they are written, on one line: 'x.size(0) * 2'. A long one is cut short."""
        words: list[str] = []
        for index in range(first, last):
            words.append(self.texts[index])
            if index + 1 < last and not self.adjacent(index):
                words.append(" ")
        text = " ".join("".join(words).split())
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE].rstrip()} ..."

    def words_in(self, first: int, last: int) -> set[str]:
        """The words of a range. A method that is called is there with its point too: '.numel()', '.size(', '.item<'."""
        found: set[str] = set()
        for index in range(first, last):
            if self.tokens[index].kind == WORD:
                text = self.texts[index]
                found.add(text)
                if self.at(index - 1) in (".", "->") and self.at(index + 1) in ("(", "<"):
                    found.add(f".{text}{self.at(index + 1)}{')' if self.at(index + 2) == ')' else ''}")
        return found

    # --- Templates --------------------------------------------------------------------------------------------------

    def template_end(self, opening: int) -> int:
        """Where the template arguments that begin at a `<` end, at a `>`; -1 where the `<` compares."""
        known = self._template_ends.get(opening)
        if known is None:
            known = self._template_ends[opening] = self._find_template_end(opening)
        return known

    @cached_property
    def _template_ends(self) -> dict[int, int]:
        return {}

    def _find_template_end(self, opening: int) -> int:
        if not self.is_word(opening - 1):
            return -1
        depth, index, last = 0, opening, min(len(self.texts), opening + _LONGEST_TEMPLATE)
        while index < last:
            text = self.texts[index]
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return -1 if self.is_number(index + 1) else index
            elif text == "=" and self.at(opening - 1) == "template":
                pass  # a default: template <int N = 4>
            elif text in _PARTNERS and self.partner[index] > index and text != "{":
                index = self.partner[index]
            elif text in _NOT_IN_TEMPLATE_ARGUMENTS:
                return -1
            index += 1
        return -1

    def before_template(self, index: int) -> int:
        """From the `>` that ends template arguments to the word before them; any other token is its own answer."""
        if self.at(index) != ">":
            return index
        for opening in range(index - 1, max(-1, index - _LONGEST_TEMPLATE), -1):
            if self.texts[opening] == "<" and self.template_end(opening) == index:
                return opening - 1
            if self.texts[opening] in (";", "{", "}"):
                break
        return index

    # --- Calls ------------------------------------------------------------------------------------------------------

    def calls(self, name: str, within: Range | None = None) -> Iterator[Call]:
        """Where `name` is called, with template arguments or without."""
        first, last = within or (0, len(self.texts))
        for index in self.words.get(name, ()):
            if first <= index < last:
                call = self.call_at(index)
                if call is not None:
                    yield call

    def call_at(self, name: int) -> Call | None:
        """The call whose name is that token."""
        opening = name + 1
        if self.at(opening) == "<":
            end = self.template_end(opening)
            if end < 0:
                return None
            opening = end + 1
        if self.at(opening) != "(":
            return None
        closing = self.closing(opening, len(self.texts))
        return Call(name, opening, closing, self.split(opening + 1, closing))

    def split(self, first: int, last: int, separator: str = ",") -> list[Range]:
        """The parts of a range between separators that no brackets enclose. None for an empty range."""
        if first >= last:
            return []
        parts, begin, index = [], first, first
        while index < last:
            text = self.texts[index]
            if text == separator:
                parts.append((begin, index))
                begin = index + 1
            elif text in _PARTNERS:
                index = self.closing(index, last)
            elif text == "<":
                end = self.template_end(index)
                index = end if index < end < last else index
            index += 1
        parts.append((begin, last))
        return parts

    # --- Statements ---------------------------------------------------------------------------------------------------

    def statement_start(self, index: int) -> int:
        """The first token of the statement that a token is in; for one in brackets, of what they enclose."""
        index -= 1
        while index >= 0:
            text = self.texts[index]
            if text in _CLOSING and self.partner[index] >= 0:
                if text == "}":
                    return index + 1
                index = self.partner[index]
            elif text in (";", "{", "}", "(", "["):
                return index + 1
            index -= 1
        return 0

    def statement_end(self, index: int, end: int) -> int:
        """The token after a statement's last: after its `;`, or after its block."""
        while index < end:
            text = self.texts[index]
            if text == ";":
                return index + 1
            if text == "{":
                closing = self.closing(index, end)
                if self.at(index - 1) in (")", "else", "do") and self.at(closing + 1) != "else":
                    return closing + 1
                index = closing
            elif text in _PARTNERS:
                index = self.closing(index, end)
            elif text == "}":
                return index
            index += 1
        return end

    def comparisons(self, first: int, last: int) -> Iterator[int]:
        """Operators that compare. A `<` or `>` of a template, a shift or a launch is none."""
        for index in range(first, last):
            text = self.texts[index]
            if text not in _COMPARISONS:
                continue
            if text == "<" and self.template_end(index) >= 0:
                continue
            if text == ">" and not self._compares(index):
                continue
            if text == ">=" and self.at(index - 1) == ">" and self.adjacent(index - 1):
                continue
            yield index

    def operands(self, comparison: int) -> tuple[Range, Range]:
        """What stands on either side of a comparison, up to what binds less."""
        begin, end = comparison - 1, comparison + 1
        while begin >= 0:
            if self.texts[begin] in (")", "]") and self.partner[begin] >= 0:
                begin = self.partner[begin]
            elif self.texts[begin] in _AROUND_COMPARISONS:
                break
            begin -= 1
        while end < len(self.texts):
            if self.texts[end] in ("(", "["):
                end = self.closing(end, len(self.texts))
            elif self.texts[end] in _AROUND_COMPARISONS:
                break
            end += 1
        return (begin + 1, comparison), (comparison + 1, min(end, len(self.texts)))

    def _compares(self, index: int) -> bool:
        if self.at(index - 1) == ">" and self.adjacent(index - 1):
            return False
        if self.at(index + 1) in (">", ">=") and self.adjacent(index):
            return False
        return self.before_template(index) == index


def _paired(texts: Sequence[str]) -> list[int]:
    partner = [-1] * len(texts)
    opened: list[int] = []
    waiting = dict.fromkeys(_PARTNERS, 0)
    for index, text in enumerate(texts):
        if text in _PARTNERS:
            opened.append(index)
            waiting[text] += 1
        elif text in _CLOSING and waiting[_CLOSING[text]]:  # one that closes nothing is passed over
            while True:  # one that closes an outer bracket ends the inner ones too
                opening = opened.pop()
                waiting[texts[opening]] -= 1
                if texts[opening] == _CLOSING[text]:
                    break
            partner[opening], partner[index] = index, opening
    return partner
