"""Where a function reads or writes through pointers that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda_text.code import Code, Range
from .variables import Variable, Variables

_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "%=", "<<=", "++", "--"}
_POINTER_CASTS = {"reinterpret_cast", "const_cast", "static_cast"}
_STORES = {"__stcs", "__stcg", "__stwt", "__stwb", "memcpy", "memset"}


@dataclass(frozen=True)
class Access:
    """`pointer[offset]`, `pointer + offset` or `pointer += offset`, at the token that names the pointer."""

    index: int
    pointer: Variable
    offset: Range
    writes: bool


def accesses_of(variables: Variables) -> Iterator[Access]:
    """Those through a parameter that points, or a pointer made from one. Shared memory and local arrays are not."""
    code = variables.code
    first, last = variables.function.body
    for index in range(first, last):
        text = code.texts[index]
        if text == "[":
            base = _base(variables, index)
            if base is not None:
                closing = code.closing(index, last)
                writes = _is_written(code, base, closing) or _is_stored(code, base)
                yield from _access(variables, base, (index + 1, closing), writes)
        elif text in ("+", "+=") and code.is_word(index - 1):
            end = _sum_end(code, index + 1, last)
            writes = text == "+" and (_is_dereferenced(code, index - 1, end) or _is_stored(code, index - 1))
            yield from _access(variables, index - 1, (index + 1, end), writes)


def _access(variables: Variables, base: int, offset: Range, writes: bool) -> Iterator[Access]:
    pointer = variables.at(base)
    if pointer is not None and is_given(variables, pointer):
        yield Access(base, pointer, offset, writes)


def is_given(variables: Variables, pointer: Variable) -> bool:
    """Whether a variable points to what a parameter points to, and to no array: those are shared or local."""
    if not pointer.pointer:
        return False
    sources = variables.sources_of(pointer)
    return any(each.parameter and each.pointer for each in sources) and not any(each.array for each in sources)


def _base(variables: Variables, opening: int) -> int | None:
    """The pointer's name in `x[`, `reinterpret_cast<float4*>(x)[` and `((float4*)x)[`."""
    code = variables.code
    before = opening - 1
    if code.is_word(before):
        return before
    if code.at(before) != ")" or code.partner[before] < 0:
        return None
    inner = code.partner[before]
    cast = code.at(code.before_template(inner - 1)) in _POINTER_CASTS or "*" in code.texts[inner:before]
    names = [index for index in range(inner + 1, before) if variables.at(index) is not None]
    return names[0] if cast and names else None


def _is_written(code: Code, base: int, closing: int) -> bool:
    after = closing + 1
    while code.at(after) in (".", "[") or (code.at(after - 1) == "." and code.is_word(after)):  # out[i].x = ...
        after = code.closing(after, len(code)) + 1 if code.at(after) == "[" else after + 1
    return code.at(after) in _ASSIGNMENTS or code.at(base - 1) in ("++", "--")


def _is_dereferenced(code: Code, base: int, end: int) -> bool:
    """`*(x + i) = ...`"""
    return code.at(base - 1) == "(" and code.at(base - 2) == "*" and code.at(end + 1) in _ASSIGNMENTS


def _is_stored(code: Code, base: int) -> bool:
    """Whether it is in the first argument of an atomic operation or a store: atomicAdd(&out[i], 1)."""
    before = base - 1
    while code.at(before) in ("&", "("):
        name = code.at(code.before_template(before - 1))
        if code.texts[before] == "(" and name not in _POINTER_CASTS:
            return name in _STORES or name.lower().startswith(("atomic", "gpuatomic", "fastatomic"))
        before = code.before_template(before - 1) - 1 if code.texts[before] == "(" else before - 1
    return False


def _sum_end(code: Code, index: int, last: int) -> int:
    while index < last:
        text = code.texts[index]
        if text in (",", ";", ")", "]", "}", "?", ":", "&&", "||", "==", "!="):
            return index
        if text in ("(", "[", "{"):
            index = code.closing(index, last)
        index += 1
    return last
