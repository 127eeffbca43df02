"""contiguous-temporary: a pointer into a tensor that is gone."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Code
from ..accesses import CASTS
from ..rule import Problem, rule
from ..source import DATA, Source

# Methods that may return a fresh tensor, which nothing else holds.
_COPIES = {"clone", "to", "float", "half", "double", "bfloat16", "cuda", "reshape", "flatten", "toType", "repeat"}


@rule("The copy that contiguous() makes is freed at the end of the statement, and the next tensor reuses its memory.")
def contiguous_temporary(source: Source) -> Iterator[Problem]:
    """`x.contiguous().data_ptr()`, and a pointer kept from another call that may return a fresh tensor."""
    for code in source.codes:
        for word in DATA:
            for index in code.words.get(word, ()):
                if code.at(index - 1) in (".", "->") and code.at(index - 2) == ")":
                    yield from _problem(code, index, index - 2)
        for call in code.calls("data"):  # opsmith::data<float>(x.contiguous())
            if code.at(call.name - 2) == "opsmith" and code.at(call.closing - 1) == ")":
                yield from _problem(code, call.name, call.closing - 1)


def _problem(code: Code, index: int, closing: int) -> Iterator[Problem]:
    first = code.called(closing)
    is_copy = code.at(first) in _COPIES and code.at(first - 1) in (".", "->")
    is_kept = _is_kept(code, index)
    if code.at(first) == "contiguous" or (is_copy and is_kept):
        while code.at(first - 1) in (".", "->", "::") and code.is_word(first - 2):
            first -= 2
        tensor = code.spelled(first, closing + 1)
        kept = "is kept" if is_kept else "is taken"
        message = f"A pointer into {tensor} {kept}, and the tensor is freed after the statement."
        yield Problem(code, first, message, f"Name it first: const auto dense = {tensor};")


def _is_kept(code: Code, index: int) -> bool:
    """Whether the statement assigns the pointer, rather than pass it to a call."""
    start = code.statement_start(index)
    while code.at(start - 1) == "(" and code.at(code.before_template(start - 2)) in CASTS:
        index, start = start - 2, code.statement_start(start - 2)
    return "=" in code.texts[start:index]
