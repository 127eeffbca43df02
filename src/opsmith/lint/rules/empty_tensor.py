"""empty-tensor: a launch whose grid is empty where the tensor is."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Function
from ..rule import Problem, rule
from ..source import SIZES, Source

_NOTHING = {"0", "1", "0L", "0LL", "1L", "1LL"}  # n == 0, n < 1


@rule("A grid of no blocks cannot be launched: an empty tensor raises 'invalid configuration', or fails silently.")
def empty_tensor(source: Source) -> Iterator[Problem]:
    """A grid computed from a tensor's size, where no size is compared with 0 in the function or in every caller."""
    found = set()
    for function, launch in source.host_launches:
        if launch.grid is None or (function, launch.kernel) in found:
            continue
        words = function.variables.origins(*launch.grid)
        if not words & SIZES or "max" in words or _is_one_more(function, *launch.grid):
            continue
        if not source.holds(function, launch.index, _checks_for_zero):
            found.add((function, launch.kernel))
            message = f"{launch.kernel} is launched on no blocks where the tensor is empty."
            yield Problem(source.code, launch.index, message, "Before it: if (x.numel() == 0) return ...;")


def _is_one_more(function: Function, first: int, last: int) -> bool:
    """Whether a grid is something plus 1: dim3(n / 256 + 1), or a variable with such a value."""
    code = function.code
    while first < last and code.at(first) in ("dim3", "(", "{") and code.at(last - 1) in (")", "}", code.at(first)):
        wrapped = code.at(first) != "dim3"
        first, last = first + 1, last - wrapped
    if last == first + 1:
        variable = function.variables.at(first)
        found = variable.definitions if variable is not None and not variable.parameter else []
        return bool(found) and all(_is_one_more(function, *each) for each in found)
    return code.texts[last - 2 : last] == ["+", "1"]


def _checks_for_zero(source: Source, function: Function, _: int) -> bool:
    code, variables = function.code, function.variables
    for index in code.comparisons(*function.body):
        left, right = code.operands(index)
        for (number, after), sized in ((left, right), (right, left)):
            if after == number + 1 and code.at(number) in _NOTHING and variables.origins(*sized) & SIZES:
                return True
    macros = {macro.name for macro in source.macros if "numel" in source.reached(macro.name)}
    for index in range(*function.body):
        text = code.texts[index]
        if (text == "(" and code.at(index - 1) == "if" and code.closing(index) == index + 2) or text == "!":
            variable = variables.at(index + 1)  # if (n), if (!n)
            if variable is not None and variables.origins_of(variable) & SIZES:
                return True
        if code.at(index + 1) == "(" and (text == "is_empty" or text in macros):  # is_empty(x), CHECK_NOT_EMPTY(x)
            return True
    return False
