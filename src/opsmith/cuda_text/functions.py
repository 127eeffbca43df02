"""The functions of a file: host functions, kernels and device functions, with their parameters and bodies.

A light reading, by brackets. Lambdas belong to the function they are in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .code import Code, Range

Kind = Literal["host", "kernel", "device"]

# What may stand before brackets without being a function's name.
_NOT_NAMES = {
    "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__align__", "__attribute__",
    "__declspec", "alignas", "decltype", "noexcept", "requires", "sizeof", "alignof", "explicit", "throw", "if", "for",
    "while", "switch", "catch", "return", "asm", "static_assert", "defined",
}  # fmt: skip
_SCOPES = {"class", "struct", "union"}
_ACCESS = {"public", "private", "protected"}
_DEVICE = re.compile(r"__device__|\w*DEVICE\w*|GPU_LAMBDA")

QUALIFIERS = {
    "const", "constexpr", "volatile", "static", "inline", "extern", "register", "mutable", "thread_local", "typename",
    "struct", "class", "enum", "union", "__restrict__", "__restrict", "restrict", "__shared__", "__device__",
    "__constant__", "__grid_constant__", "__forceinline__", "consteval", "constinit",
}  # fmt: skip
INTEGERS = {
    "bool": 32, "char": 32, "short": 32, "int": 32, "unsigned": 32, "signed": 32, "uint": 32,
    "int8_t": 32, "uint8_t": 32, "int16_t": 32, "uint16_t": 32, "int32_t": 32, "uint32_t": 32,
    "long": 64, "int64_t": 64, "uint64_t": 64, "size_t": 64, "ssize_t": 64, "ptrdiff_t": 64, "intptr_t": 64,
    "uintptr_t": 64, "__int128": 64,
}  # fmt: skip
"""Words of integer types, and how many bits arithmetic on them has."""


@dataclass(frozen=True)
class Parameter:
    """`const float* __restrict__ x`: its name, the words of its type without qualifiers, and whether it points."""

    name: str
    index: int
    type: tuple[str, ...]
    pointer: bool


@dataclass(frozen=True, eq=False)
class Function:
    """One definition. `head` is from its first token to its body, `body` what its braces enclose."""

    code: Code
    name: str
    index: int
    kind: Kind
    head: Range
    parameter_list: Range
    body: Range

    @cached_property
    def parameters(self) -> list[Parameter]:
        first, last = self.parameter_list
        parts = self.code.split(first, last)
        return [parameter for part in parts if (parameter := parameter_in(self.code, *part)) is not None]

    @cached_property
    def template_parameters(self) -> dict[str, tuple[str, ...]]:
        """By name the words before it: {'T': ('typename',), 'N': ('int',)}."""
        first, last = self.head
        found = {}
        for index in self.code.words.get("template", ()):
            if first <= index < last and self.code.at(index + 1) == "<":
                end = self.code.template_end(index + 1)
                for begin, stop in self.code.split(index + 2, end) if end > 0 else ():
                    words = [self.code.texts[at] for at in range(begin, stop)]
                    words = words[: words.index("=")] if "=" in words else words
                    if len(words) > 1:
                        found[words[-1]] = tuple(words[:-1])
        return found

    def __contains__(self, index: int) -> bool:
        return self.body[0] <= index < self.body[1]


def parameter_in(code: Code, first: int, last: int) -> Parameter | None:
    """The parameter that a range declares; None for `void`, `...` and a type without a name."""
    end = first
    words: list[str] = []
    name = -1
    pointer = False
    while end < last:
        text = code.texts[end]
        if text == "=":
            break
        if text == "[":
            pointer = True
            break
        if text == "<":
            stop = max(end, min(code.template_end(end), last - 1))
            words += [code.texts[index] for index in (name, *range(end + 1, stop)) if code.is_word(index)]
            name, end = -1, stop
        elif text == "(":  # void (*function)(int), float (&values)[4]
            return None
        elif text in ("*", "&", "&&"):
            pointer = pointer or text == "*"
        elif code.is_word(end):
            if text not in QUALIFIERS:
                if name >= 0:
                    words.append(code.texts[name])
                name = end
        elif text == "::":
            if name >= 0:
                words.append(code.texts[name])
            words.append("::")
            name = -1
        end += 1
    if name < 0 or not words or words[-1] == "::" or code.texts[name] in INTEGERS:
        return None
    return Parameter(code.texts[name], name, tuple(words), pointer)


def functions_in(code: Code) -> list[Function]:
    """Every function that is defined, in order: at file scope, in namespaces, in classes."""
    return list(_functions(code))


def _functions(code: Code) -> Iterator[Function]:
    start, index, last = 0, 0, len(code)
    while index < last:
        text = code.texts[index]
        if text in (";", "}") or (text == ":" and code.at(index - 1) in _ACCESS):
            start = index + 1
        elif text in ("(", "["):
            index = code.closing(index, last)
        elif text == "{":
            if _opens_scope(code, start, index):
                start = index = index + 1
                continue
            end = code.closing(index, last)
            found = _parameter_list(code, start, index)
            if found is not None:
                if found[2] and (code.is_word(index - 1) or code.at(index - 1) == ">"):
                    index = end + 1  # a member of a constructor's list: `: count{0}`
                    continue
                name, opening, _ = found
                parameters = opening + 1, code.partner[opening]
                kind = _kind(code, start, index)
                yield Function(code, code.texts[name], name, kind, (start, index), parameters, (index + 1, end))
                start = end + 1
            elif "=" not in code.texts[start:index]:
                start = end + 1
            index = end
        index += 1


def _opens_scope(code: Code, first: int, last: int) -> bool:
    words = code.texts[first:last]
    if "namespace" in words or (words[:1] == ["extern"] and len(words) == 2):
        return True
    if not _SCOPES.intersection(words):
        return False
    # `struct Place {`, `class alignas(16) A : B<int> {`; but `struct A f() {` is a function.
    return _parameter_list(code, first, last) is None


def _parameter_list(code: Code, first: int, last: int) -> tuple[int, int, bool] | None:
    """A function's name, the bracket its parameters begin with, and whether a constructor's list follows them."""
    found: tuple[int, int, bool] | None = None
    index = first
    while index < last:
        text = code.texts[index]
        if text == "template" and code.at(index + 1) == "<":
            index = max(index, min(code.template_end(index + 1), last - 1))
        elif text == "operator":
            opening = index + 3 if code.texts[index + 1 : index + 3] == ["(", ")"] else index + 1
            while opening < last and code.texts[opening] != "(":
                opening += 1
            if opening < last and code.texts[opening] == "(":
                found = (index, opening, False)
                index = code.closing(opening, last)
        elif text == "(":
            before = code.before_template(index - 1)
            if before >= first and code.is_word(before) and code.texts[before] not in _NOT_NAMES:
                if code.partner[index] < 0:
                    return None
                found = (before, index, False)
            index = code.closing(index, last)
        elif text == "[":
            index = code.closing(index, last)
        elif text == ":" and found is not None:
            return (*found[:2], True)
        elif text == "->" and found is not None:
            return found
        elif text == "=":
            return None
        index += 1
    return found


def _kind(code: Code, first: int, last: int) -> Kind:
    words = code.texts[first:last]
    if "__global__" in words:
        return "kernel"
    return "device" if any(_DEVICE.fullmatch(word) for word in words) else "host"
