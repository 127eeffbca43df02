"""Parameters of functions and the words of their types."""

from __future__ import annotations

from dataclasses import dataclass

from .code import Code, Range

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
BUILTIN = {
    "void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "wchar_t",
    "char8_t", "char16_t", "char32_t", "__int128",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """`const float* __restrict__ x`: its name, '' without one; the words of its type without qualifiers."""

    text: str
    name: str
    index: int
    type: tuple[str, ...]
    pointer: bool


def parameter_in(code: Code, first: int, last: int) -> Parameter:
    """The parameter that a range declares."""
    end = code.find({"=", "["}, first, last)
    words = [index for index in range(first, end) if code.is_word(index) or code.texts[index] == "::"]
    words = [index for index in words if code.texts[index] not in QUALIFIERS]
    pointer = code.at(end) == "[" or any(code.texts[index] == "*" for index in code.outside(first, end, templates=True))
    name = ""
    # A type alone has no other word before its last: const T, cuda::std::size_t.
    if len(words) > 1 and words[-1] == end - 1 and code.texts[words[-2]] != "::":
        name = code.texts[words[-1]]
    if name in BUILTIN or name in INTEGERS:
        name = ""
    type = tuple(code.texts[index] for index in (words[:-1] if name else words))
    return Parameter(code.written(first, last), name, end - 1, type, pointer)


def template_parameters(code: Code, template: int) -> list[Range]:
    """The parameters after the word `template`."""
    end = code.template_end(template + 1) if code.at(template + 1) == "<" else -1
    return code.split(template + 2, end)
