"""missing-bounds-check: a kernel that writes at an index it never compares."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Function, Range
from ..accesses import accesses_of
from ..rule import Problem, rule
from ..source import Source

_COMPARING = {
    "if", "while", "for", "switch", "constexpr", "assert", "min", "max", "clamp", "lesser", "umin", "fminf",
}  # fmt: skip


@rule("The last block has threads past the end of the tensor, which write to other memory.")
def missing_bounds_check(source: Source) -> Iterator[Problem]:
    """A kernel that writes at an index of block and thread, where no part of the index is compared."""
    for function in source.kernels.values():
        for access in accesses_of(function):
            first, last = access.offset
            origins = function.variables.origins(first, last)
            if access.writes and {"blockIdx", "threadIdx"} <= origins and not _is_compared(function, access.offset):
                text = source.code.spelled(first, last)
                message = (
                    f"{function.name} writes {access.pointer.name}[{text}] and does not compare {text}: the grid is "
                    "rounded up to whole blocks."
                )
                remedy = f"Before it: if ({text} >= n) return;"
                if last > first + 1:
                    remedy = "Before it: return where a part of the index is past its size: if (row >= rows) return;"
                yield Problem(source.code, access.index, message, remedy)
                break


def _is_compared(function: Function, index: Range) -> bool:
    """Whether a comparison, a condition or a limit has a variable that shares a source with the index."""
    code, variables = function.code, function.variables
    sources = {source for variable in variables.used_in(*index) for source in variables.sources_of(variable)}
    related = sources | {variable for variable in variables if variables.sources_of(variable) & sources}

    def is_related(first: int, last: int) -> bool:
        words = code.texts[first:last]
        return "threadIdx" in words or "blockIdx" in words or bool(variables.used_in(first, last) & related)

    comparisons = code.comparisons(*function.body)
    if any(is_related(*operand) for comparison in comparisons for operand in code.operands(comparison)):
        return True
    return any(
        code.texts[at] == "(" and code.at(at - 1) in _COMPARING and is_related(at + 1, code.closing(at))
        for at in range(*function.body)
    )
