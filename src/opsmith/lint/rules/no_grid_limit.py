"""no-grid-limit: a grid whose y or z is a tensor's size."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Function, Launch, Range
from ..rule import Problem, rule
from ..source import SIZES, Source


@rule("Along y and z a grid has at most 65535 blocks, and a tensor may have more rows.")
def no_grid_limit(source: Source) -> Iterator[Problem]:
    """One block per row along y or z, where the number of rows is not limited."""
    found = set()
    for function, launch in source.host_launches:
        for axis, part in _beyond_x(function, launch):
            if part[0] not in found and _is_unlimited(function, part):
                found.add(part[0])
                size = source.code.spelled(*part)
                message = f"The grid of {launch.kernel} is {size} along {axis}, where the limit is 65535 blocks."
                remedy = "Put it along x, where the limit is 2147483647, or let each block process several."
                yield Problem(source.code, part[0], message, remedy)


def _beyond_x(function: Function, launch: Launch) -> Iterator[tuple[str, Range]]:
    """The grid along y and z: in `dim3(a, b, c)`, in the variable that holds it, in opsmith's `{a, b, c}`."""
    code = function.code
    first, last = launch.grid or (0, 0)
    variable = function.variables.only(first, last)
    if variable is not None and variable.type == ("dim3",) and len(variable.definitions) == 1:
        first, last = variable.definitions[0]
        parts = code.split(first, last)
        if code.at(first) == "dim3":  # dim3 grid = dim3(a, b)
            parts = code.split(first + 2, code.closing(first + 1, last))
    elif code.at(first) == "{" or (code.at(first) == "dim3" and code.at(first + 1) in ("(", "{")):
        first += code.at(first) == "dim3"
        parts = code.split(first + 1, code.closing(first, last))
    else:
        return
    yield from zip("yz", parts[1:3], strict=False)


def _is_unlimited(function: Function, part: Range) -> bool:
    code, variables = function.code, function.variables
    words = variables.origins(*part)
    if not words & SIZES or words & {"min", "clamp", "ceil_div", "div_up", "DIVUP", "CEIL_DIV"}:
        return False
    used = {source for variable in variables.used_in(*part) for source in variables.sources_of(variable)}
    own = {variable for variable in used if not variable.parameter}
    ranges = [part, *(definition for variable in used for definition in variable.definitions)]
    if any(not {"/", ">"}.isdisjoint(code.texts[slice(*each)]) for each in ranges):
        return False  # divided or shifted: each block processes many rows
    if function.texts & {"65535", "65536", "0xffff", "maxGridSize"}:
        return False
    spelled = code.spelled(*part)
    for comparison in code.comparisons(*function.body):
        operands = code.operands(comparison)
        is_of_part = any(variables.used_in(*each) & own or code.spelled(*each) == spelled for each in operands)
        if is_of_part and "0" not in code.texts[slice(*operands[1])]:  # rows == 0 is not a limit
            return False
    return True
