"""The variables of a function: their types, what they are set to, and what a value comes from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from .code import Code, Range
from .parameters import INTEGERS, QUALIFIERS, Parameter, parameter_in

_NO_TYPES = {
    "return", "else", "throw", "delete", "new", "goto", "case", "using", "typedef", "if", "for", "while", "do",
    "switch", "break", "continue", "default", "sizeof", "operator", "template", "co_return", "co_yield", "co_await",
    "public", "private", "protected", "namespace", "static_assert", "asm", "and", "or", "not", "this", "true",
    "false", "nullptr",
}  # fmt: skip
_WITH_BRACKETS = {"alignas", "__align__", "__attribute__", "__launch_bounds__"}
_HEADERS = {"for", "if", "while", "switch", "constexpr"}
_AFTER_NAME = {"=", ";", ",", "(", "{", "[", ":", ")"}
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "%=", "<<="}


@dataclass(eq=False)
class Variable:
    """A variable or a parameter. `definitions` are its initialisers and the values assigned to it."""

    name: str
    index: int  # of the token that declares it
    end: int  # of its scope
    type: tuple[str, ...]
    pointer: bool = False
    array: bool = False
    parameter: bool = False
    definitions: list[Range] = field(default_factory=list)

    @property
    def bits(self) -> int | None:
        """64 or 32 for an integer; None for another type, or where it is not known (auto, a template's)."""
        widths = [INTEGERS[word] for word in self.type if word in INTEGERS]
        known = all(word in INTEGERS or word in ("std", "::", "cuda", "opsmith") for word in self.type)
        return max(widths) if widths and known and not self.pointer and not self.array else None


class Variables:
    """Those of one function, its lambdas' parameters too."""

    def __init__(self, code: Code, parameters: Iterable[Parameter], body: Range) -> None:
        self.code = code
        self.body = body
        self._by_name: dict[str, list[Variable]] = {}  # in the order of the declarations
        self._origins: dict[Variable, frozenset[str]] = {}
        of_function = (_parameter(each, body[1]) for each in parameters)
        for variable in sorted([*of_function, *_declared(code, *body)], key=lambda variable: variable.index):
            self._by_name.setdefault(variable.name, []).append(variable)
        for index in range(*body):
            if code.texts[index] in _ASSIGNMENTS and code.at(index - 2) not in (".", "->"):
                assigned = self.at(index - 1)
                if assigned is not None and assigned.index != index - 1:
                    assigned.definitions.append((index + 1, _expression_end(code, index + 1, body[1])))

    def __iter__(self) -> Iterator[Variable]:
        for variables in self._by_name.values():
            yield from variables

    def find(self, name: str, index: int) -> Variable | None:
        """The variable that a name means at a token: the last one declared before, in a scope still open."""
        known = self._by_name.get(name, [])
        before = known[: bisect_right(known, index, key=lambda variable: variable.index)]
        return next((variable for variable in reversed(before) if index < variable.end), None)

    def at(self, index: int) -> Variable | None:
        """The variable that a token names, if it names one. `.x` and `->x` are members."""
        if not self.code.is_word(index) or self.code.at(index - 1) in (".", "->", "::"):
            return None
        return self.find(self.code.texts[index], index)

    def only(self, first: int, last: int) -> Variable | None:
        """The variable that a range is, if it is one."""
        return self.at(first) if last == first + 1 else None

    def used_in(self, first: int, last: int) -> set[Variable]:
        """The variables that are named in a range."""
        return {variable for index in range(first, last) if (variable := self.at(index)) is not None}

    def origins(self, first: int, last: int) -> frozenset[str]:
        """Every word in a range, and those in what its variables are set to, and so on: what the value comes from."""
        words = self.code.words_in(first, last)
        for variable in self.used_in(first, last):
            words |= self.origins_of(variable)
        return frozenset(words)

    def origins_of(self, variable: Variable) -> frozenset[str]:
        """The same of a variable's value."""
        if variable not in self._origins:
            ranges = (each for source in self.sources_of(variable) for each in source.definitions)
            self._origins[variable] = frozenset().union(*(self.code.words_in(*each) for each in ranges))
        return self._origins[variable]

    def sources_of(self, variable: Variable) -> set[Variable]:
        """The variable, and those that it is computed from."""
        found, waiting = {variable}, [variable]
        while waiting:
            for first, last in waiting.pop().definitions:
                new = self.used_in(first, last) - found
                found |= new
                waiting += new
        return found


def _parameter(parameter: Parameter, end: int) -> Variable:
    return Variable(parameter.name, parameter.index, end, parameter.type, parameter.pointer, parameter=True)


def _declared(code: Code, first: int, last: int) -> Iterator[Variable]:
    blocks = [last]  # where the blocks end that a token is in
    for index in range(first, last):
        text = code.texts[index]
        before = code.at(index - 1)
        if text == "{":
            blocks.append(code.closing(index, last))
        elif text == "}" and len(blocks) > 1:
            blocks.pop()
        lambda_body = _lambda_body(code, index) if text == "(" and before == "]" else -1
        if lambda_body >= 0:
            end = code.closing(lambda_body, last)
            parameters = (parameter_in(code, *part) for part in code.split(index + 1, code.closing(index, last)))
            yield from (replace(_parameter(each, end), parameter=False) for each in parameters if each.name)
        elif index == first or before in (";", "{", "}"):
            yield from _declaration(code, index, last, blocks[-1])
        elif before == "(" and code.at(index - 2) in _HEADERS:
            yield from _declaration(code, index, last, _header_end(code, index - 1, last))


def _lambda_body(code: Code, opening: int) -> int:
    """Where a lambda's body begins, after its parameters; -1 if they are not a lambda's."""
    after = code.closing(opening) + 1
    between = {"mutable", "noexcept", "const", "constexpr", "->"}
    index = after
    while code.at(index) in between or (index > after and code.is_word(index)):
        index += 1
    return index if code.at(index) == "{" else -1


def _declaration(code: Code, first: int, last: int, end: int) -> Iterator[Variable]:
    """`const float* __restrict__ row = x + i, *other;`: each variable of a declaration, if it is one."""
    index = first
    words: list[str] = []
    while index < last:
        text = code.texts[index]
        if text in _WITH_BRACKETS and code.at(index + 1) == "(":
            index = code.closing(index + 1, last) + 1
        elif text in QUALIFIERS:
            index += 1
        elif text in INTEGERS or (not words and code.is_word(index) and text not in _NO_TYPES):
            words.append(text)
            index += 1
        elif text == "::" and words and code.is_word(index + 1):
            words += ["::", code.texts[index + 1]]
            index += 2
        elif text == "<" and words and code.template_end(index) > 0:
            index = code.template_end(index) + 1
        else:
            break
    if not words:
        return
    while index < last:
        pointer = False
        while code.at(index) in ("*", "&", "&&", "const", "__restrict__", "__restrict", "volatile"):
            pointer = pointer or code.texts[index] == "*"
            index += 1
        name = index
        if not code.is_word(name) or code.texts[name] in _NO_TYPES or code.at(name + 1) not in _AFTER_NAME:
            return
        variable = Variable(code.texts[name], name, end, tuple(words), pointer)
        index += 1
        while code.at(index) == "[":
            variable.array = True
            index = code.closing(index, last) + 1
        if code.at(index) in ("(", "{"):
            closing = code.closing(index, last)
            variable.definitions.append((index + 1, closing))
            index = closing + 1
        elif code.at(index) in ("=", ":"):
            stop = _expression_end(code, index + 1, last)
            variable.definitions.append((index + 1, stop))
            index = stop
        yield variable
        if code.at(index) != ",":
            return
        index += 1


def _expression_end(code: Code, index: int, last: int) -> int:
    """The `,`, `;` or closing bracket after an expression."""
    return code.find({",", ";", ")", "}", "]"}, index, last, templates=True)


def _header_end(code: Code, opening: int, last: int) -> int:
    """Where the scope ends of what is declared in the header of a loop, an if or a switch."""
    end = code.statement_end(code.closing(opening, last) + 1, last)
    while code.at(end) == "else":  # what an if declares is known in its else too
        end = code.statement_end(end + 1, last)
    return end
