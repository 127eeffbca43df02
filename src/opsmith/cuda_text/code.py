"""Code: tokens with their brackets paired; finds calls, arguments, statements and comparisons."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from .tokens import is_number, is_word

_PARTNERS = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {")": "(", "]": "[", "}": "{"}
BRACKETS = _PARTNERS.keys() | _CLOSING.keys()
_NOT_IN_TEMPLATE_ARGUMENTS = {";", "{", "}", "&&", "||", "?", ":", "<<<", "<=", ">=", "==", "!=", "=", ")", "]"}
_AROUND_COMPARISONS = {";", "{", "}", "(", ")", "[", "]", ",", "&&", "||", "=", "return", "?", ":", "!"}
_LONGEST_QUOTE = 60
_LONGEST_TEMPLATE = 500
"""Tokens. A `<` without a `>` within so many is a comparison: keeps the search short in text that is not C++."""
_COMPARISONS = {"<", ">", "<=", ">=", "==", "!="}

Range = tuple[int, int]
"""Indices of tokens: the first, and the one after the last."""


class Call(NamedTuple):
    """`name(a, b)` or `name<T>(a, b)`, as indices of tokens."""

    name: int
    opening: int
    closing: int
    arguments: list[Range]


class Code:
    """A sequence of tokens. `starts` are their places in the file."""

    def __init__(self, texts: list[str], starts: list[int]) -> None:
        self.texts = texts
        self.starts = starts
        self._template_ends: dict[int, int] = {}

    @cached_property
    def partner(self) -> dict[int, int]:
        """The index of each bracket's partner. Unpaired brackets are not in it."""
        return paired(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def words(self) -> dict[str, list[int]]:
        """The indices of each word."""
        found: dict[str, list[int]] = {}
        for index, text in enumerate(self.texts):
            if is_word(text):
                found.setdefault(text, []).append(index)
        return found

    def at(self, index: int) -> str:
        """The text of a token, or '' beyond the ends."""
        return self.texts[index] if 0 <= index < len(self.texts) else ""

    def is_word(self, index: int) -> bool:
        return is_word(self.at(index))

    def adjacent(self, index: int) -> bool:
        """Whether no white space is between a token and the next."""
        return self.starts[index] + len(self.texts[index]) == self.starts[index + 1]

    def closing(self, opening: int, end: int | None = None) -> int:
        """The partner of an opening bracket; `end`, or the end of the code, if it has none before that."""
        end = len(self.texts) if end is None else end
        return min(self.partner.get(opening, end), end)

    def opening(self, closing: int) -> int:
        """The partner of a closing bracket, or -1."""
        return self.partner.get(closing, -1)

    def outside(self, first: int, last: int, templates: bool = False) -> Iterator[int]:
        """The tokens of a range that no brackets enclose. Opening brackets are among them, their partners are not.

        With `templates`, template arguments are left out as well."""
        index = first
        while index < last:
            text = self.texts[index]
            if templates and text == "<" and index < self.template_end(index) < last:
                index = self.template_end(index)
            else:
                yield index
                if text in _PARTNERS:
                    index = self.closing(index, last)
            index += 1

    def find(self, stops: Container[str], first: int, last: int, templates: bool = False) -> int:
        """The first of some tokens that no brackets enclose; `last` if there is none."""
        return next((index for index in self.outside(first, last, templates) if self.texts[index] in stops), last)

    def written(self, first: int, last: int) -> str:
        """A range as it is written, on one line: 'x.size(0) * 2'."""
        words: list[str] = []
        for index in range(first, last):
            words.append(self.texts[index])
            if index + 1 < last and not self.adjacent(index):
                words.append(" ")
        return " ".join("".join(words).split())

    def spelled(self, first: int, last: int) -> str:
        """The same for messages: a long range is cut short."""
        text = self.written(first, last)
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE].rstrip()} ..."

    def words_in(self, first: int, last: int) -> set[str]:
        """The words of a range. A method that is called is there with its dot too: '.numel()', '.size(', '.item<'."""
        found: set[str] = set()
        for index in range(first, last):
            if self.is_word(index):
                text = self.texts[index]
                found.add(text)
                if self.at(index - 1) in (".", "->") and self.at(index + 1) in ("(", "<"):
                    found.add(f".{text}{self.at(index + 1)}{')' if self.at(index + 2) == ')' else ''}")
        return found

    # --- Templates --------------------------------------------------------------------------------------------------

    def template_end(self, opening: int) -> int:
        """Where the template arguments that begin at a `<` end, at a `>`; -1 where the `<` compares."""
        if opening not in self._template_ends:
            self._template_ends[opening] = self._find_template_end(opening)
        return self._template_ends[opening]

    def _find_template_end(self, opening: int) -> int:
        if not self.is_word(opening - 1):
            return -1
        depth = 0
        for index in self.outside(opening, min(len(self), opening + _LONGEST_TEMPLATE)):
            text = self.texts[index]
            depth += (text == "<") - (text == ">")
            if depth == 0:
                return -1 if is_number(self.at(index + 1)) else index
            if text in _NOT_IN_TEMPLATE_ARGUMENTS and not (text == "=" and self.at(opening - 1) == "template"):
                return -1
        return -1

    def before_template(self, index: int) -> int:
        """The word before template arguments that end with a `>`; for any other token, the token itself."""
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

    def called(self, closing: int) -> int:
        """The name of the call that ends with a bracket: `f` in `f<T>(a)`, `static_cast` in `static_cast<T>(a)`."""
        return self.before_template(self.opening(closing) - 1)

    def split(self, first: int, last: int) -> list[Range]:
        """The parts of a range between commas that no brackets enclose. None for an empty range."""
        commas = [index for index in self.outside(first, last, templates=True) if self.texts[index] == ","]
        begins = [first, *(comma + 1 for comma in commas)]
        return list(zip(begins, [*commas, last], strict=True)) if first < last else []

    # --- Statements ---------------------------------------------------------------------------------------------------

    def statement_start(self, index: int) -> int:
        """The first token of the statement that a token is in; for one in brackets, of what they enclose."""
        index -= 1
        while index >= 0:
            text = self.texts[index]
            if text in (";", "{", "}", "(", "["):
                return index + 1
            index = self.partner.get(index, index) - 1
        return 0

    def statement_end(self, index: int, end: int) -> int:
        """The token after a statement's last: after its `;`, or after its block."""
        for at in self.outside(index, end):
            text = self.texts[at]
            if text == ";":
                return at + 1
            if text == "{" and self.at(at - 1) in (")", "else", "do"):
                closing = self.closing(at, end)
                if self.at(closing + 1) != "else":
                    return closing + 1
            if text == "}":
                return at
        return end

    def comparisons(self, first: int, last: int) -> Iterator[int]:
        """Operators that compare, without the `<` and `>` of templates, shifts and launches."""
        return (index for index in range(first, last) if self.texts[index] in _COMPARISONS and self._compares(index))

    def _compares(self, index: int) -> bool:
        text = self.texts[index]
        if text == "<":
            return self.template_end(index) < 0
        if text in (">", ">=") and self.at(index - 1) == ">" and self.adjacent(index - 1):
            return False
        is_first = self.at(index + 1) in (">", ">=") and self.adjacent(index)
        return text != ">" or (not is_first and self.before_template(index) == index)

    def operands(self, comparison: int) -> tuple[Range, Range]:
        """The operands of a comparison, up to operators that bind less."""
        begin = comparison - 1
        while begin >= 0:
            if self.texts[begin] in (")", "]") and begin in self.partner:
                begin = self.partner[begin]
            elif self.texts[begin] in _AROUND_COMPARISONS:
                break
            begin -= 1
        end = self.find(_AROUND_COMPARISONS - {"(", "["}, comparison + 1, len(self))
        return (begin + 1, comparison), (comparison + 1, end)


def paired(texts: Sequence[str]) -> dict[int, int]:
    partner: dict[int, int] = {}
    opened: list[int] = []
    waiting = dict.fromkeys(_PARTNERS, 0)
    for index in [index for index, text in enumerate(texts) if text in BRACKETS]:
        text = texts[index]
        if text in _PARTNERS:
            opened.append(index)
            waiting[text] += 1
        elif waiting[_CLOSING[text]]:  # brackets that close nothing are skipped
            while True:  # a bracket that closes an outer one ends the inner ones too
                opening = opened.pop()
                waiting[texts[opening]] -= 1
                if texts[opening] == _CLOSING[text]:
                    break
            partner[opening], partner[index] = index, opening
    return partner
