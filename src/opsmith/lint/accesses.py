"""Where a function reads or writes through its pointer parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda_text import Code, Function, Range, Variable, Variables

_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "%=", "<<=", "++", "--"}
_AFTER_SUM = {",", ";", ")", "]", "}", "?", ":", "&&", "||", "==", "!="}
CASTS = {"reinterpret_cast", "const_cast", "static_cast"}
_STORES = {"__stcs", "__stcg", "__stwt", "__stwb", "memcpy", "memset"}


@dataclass(frozen=True)
class Access:
    """`pointer[offset]`, `pointer + offset` or `pointer += offset`, at the token that names the pointer."""

    index: int
    pointer: Variable
    offset: Range
    writes: bool


def accesses_of(function: Function) -> Iterator[Access]:
    """Those through a pointer parameter, or a pointer made from one. Shared memory and local arrays are not."""
    code, variables = function.code, function.variables
    for index in range(*function.body):
        text = code.texts[index]
        if text == "[":
            base, end = _base(variables, index), code.closing(index, function.body[1])
            writes = base is not None and (_is_assigned(code, base, end) or _is_stored(code, base))
        elif text in ("+", "+="):
            base, end = index - 1, code.find(_AFTER_SUM, index + 1, function.body[1])
            writes = text == "+" and (_is_dereferenced(code, base, end) or _is_stored(code, base))
        else:
            continue
        pointer = variables.at(base) if base is not None else None
        if base is not None and pointer is not None and _is_given(variables, pointer):
            yield Access(base, pointer, (index + 1, end), writes)


def _is_given(variables: Variables, pointer: Variable) -> bool:
    """Whether a variable points where a parameter points. Arrays are shared or local memory."""
    sources = variables.sources_of(pointer) if pointer.pointer else set()
    return any(each.parameter and each.pointer for each in sources) and not any(each.array for each in sources)


def _base(variables: Variables, opening: int) -> int | None:
    """The pointer's name in `x[`, `reinterpret_cast<float4*>(x)[` and `((float4*)x)[`."""
    code, before = variables.code, opening - 1
    if code.is_word(before):
        return before
    inner = code.opening(before) if code.at(before) == ")" else -1
    if inner < 0 or not (code.at(code.called(before)) in CASTS or "*" in code.texts[inner:before]):
        return None
    return next((index for index in range(inner + 1, before) if variables.at(index) is not None), None)


def _is_assigned(code: Code, base: int, closing: int) -> bool:
    after = closing + 1
    while code.at(after) in (".", "[") or (code.at(after - 1) == "." and code.is_word(after)):  # out[i].x = ...
        after = code.closing(after) + 1 if code.at(after) == "[" else after + 1
    return code.at(after) in _ASSIGNMENTS or code.at(base - 1) in ("++", "--")


def _is_dereferenced(code: Code, base: int, end: int) -> bool:
    """`*(x + i) = ...`"""
    return code.at(base - 1) == "(" and code.at(base - 2) == "*" and code.at(end + 1) in _ASSIGNMENTS


def _is_stored(code: Code, base: int) -> bool:
    """Whether it is in the first argument of an atomic operation or a store: atomicAdd(&out[i], 1)."""
    before = base - 1
    while code.at(before) in ("&", "("):
        name = code.before_template(before - 1)
        if code.texts[before] == "(" and code.at(name) not in CASTS:
            return code.at(name) in _STORES or code.at(name).lower().startswith(("atomic", "gpuatomic", "fastatomic"))
        before = name - 1 if code.texts[before] == "(" else before - 1
    return False
