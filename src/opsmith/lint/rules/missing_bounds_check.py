"""missing-bounds-check: a kernel that writes at an index it never compares."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text.functions import Function
from ..accesses import accesses_of
from ..rule import Problem, rule
from ..source import Source
from ..variables import Variable, Variables

_HEADERS = {"if", "while", "for", "switch", "constexpr", "assert"}
_LIMITS = {"min", "max", "clamp", "lesser", "umin", "fminf"}


@rule("The last block has threads past the end of the tensor, and what they write lands in other memory.")
def missing_bounds_check(source: Source) -> Iterator[Problem]:
    """A kernel that writes at an index of block and thread, where nothing that the index is made of is ever compared.

    Bad:

        __global__ void square(const float* x, float* y) {
          const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
          y[i] = x[i] * x[i];
        }

    Good:

        __global__ void square(const float* x, float* y, int64_t n) {
          const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[i] * x[i];
        }

    Good:

        __global__ void square(const float* x, float* y, int64_t n) {
          const int64_t step = int64_t{gridDim.x} * blockDim.x;
          for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i] * x[i];
        }
    """
    for function in source.kernels.values():
        variables = source.variables(function)
        for access in accesses_of(variables):
            if not access.writes or not {"blockIdx", "threadIdx"} <= variables.origins(*access.offset):
                continue
            if _is_compared(source, function, variables, *access.offset):
                continue
            text = source.code.spelled(*access.offset)
            yield Problem(
                source.code,
                access.index,
                f"{function.name} writes {access.pointer.name}[{text}] and compares {text} with nothing: the grid is "
                "rounded up to whole blocks.",
                f"Before it: if ({text} >= n) return;"
                if access.offset[1] == access.offset[0] + 1
                else "Before it: return where a part of the index is past its size, as in if (row >= rows) return;",
            )
            break


def _is_compared(source: Source, function: Function, variables: Variables, first: int, last: int) -> bool:
    code = source.code
    used = variables.used_in(first, last)
    sources: set[Variable] = set().union(*map(variables.sources_of, used)) if used else set()
    related = variables.results_of(sources) | sources

    def is_related(begin: int, end: int) -> bool:
        words = code.texts[begin:end]
        return "threadIdx" in words or "blockIdx" in words or bool(variables.used_in(begin, end) & related)

    begin, end = function.body
    for index in code.comparisons(begin, end):
        if any(is_related(*operand) for operand in code.operands(index)):
            return True
    for index in range(begin, end):
        if code.texts[index] == "(" and (code.at(index - 1) in _HEADERS or code.at(index - 1) in _LIMITS):
            if is_related(index + 1, code.closing(index, end)):
                return True
    return False
