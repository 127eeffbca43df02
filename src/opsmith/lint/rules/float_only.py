"""float-only: elements read as one type, whatever their dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text import Code, Function
from ..rule import Problem, rule
from ..source import DATA, Source
from .float_atomics import FLOATS

_TYPES = FLOATS | {"int", "long", "int32_t", "int64_t", "uint8_t", "bool", "char"}
_CHECK = re.compile(r"scalar_type|ScalarType|is_floating_point|(?:AT|THO)_DISPATCH\w*|\.dtype(?:\(\)|<)")


@rule("A pointer of a fixed type reads garbage from other dtypes, or rejects them without naming the argument.")
def float_only(source: Source) -> Iterator[Problem]:
    """A parameter read as one floating-point type, where neither the function nor its callers check the dtype.

    `data_ptr<float>()` raises for another dtype; a cast of `data_ptr()` does not even do that.
    """
    for function in source.host_functions:
        places = sorted(index for word in DATA for index in source.code.words.get(word, ()) if index in function)
        reads = ((index, _read_as(function, index)) for index in places)
        index, read = next(((index, read) for index, read in reads if read is not None), (0, None))
        if read is not None and not source.holds(function, index, _checks_dtype):
            tensor, type, is_cast = read
            message = f"{function.name} accepts only {type}, and no message names the argument."
            if is_cast:
                message = f"{tensor} is read as {type}, whatever its dtype is."
            remedy = f'Dispatch on {tensor}.scalar_type(), or TORCH_CHECK(it, "{tensor} must be ...").'
            yield Problem(source.code, index - 2, message, remedy)


def _read_as(function: Function, index: int) -> tuple[str, str, bool] | None:
    """The parameter whose elements are read, the type they are read as, and whether by a cast."""
    code, variables = function.code, function.variables
    if code.at(index - 1) not in (".", "->"):
        return None
    name = index - 2
    if code.texts[index - 6 : index - 1] == [".", "contiguous", "(", ")", "."]:
        name = index - 7
    variable = variables.at(name)
    if variable is not None and not variable.parameter and len(variable.definitions) == 1:
        first, last = variable.definitions[0]  # auto dense = x.contiguous();
        if code.texts[first + 1 : last] == [".", "contiguous", "(", ")"]:
            variable = variables.at(first)
    if variable is None or not variable.parameter or "Tensor" not in variable.type:
        return None
    is_cast = code.at(index + 1) != "<"
    if is_cast:
        words = [text for text in _cast_before(code, name) if text in _TYPES]
    else:
        words = [text for text in code.texts[index + 2 : code.template_end(index + 1)] if text in FLOATS]
    return (variable.name, words[-1], is_cast) if words else None


def _cast_before(code: Code, index: int) -> list[str]:
    """The type in `static_cast<float*>(x` and `(float*)x`."""
    before = index - 1
    if code.at(before) == "(":
        name = code.before_template(before - 1)
        return code.texts[name + 2 : before - 1] if code.at(name).endswith("_cast") else []
    return code.texts[code.opening(before) + 1 : before] if code.at(before) == ")" else []


def _checks_dtype(source: Source, function: Function, _: int) -> bool:
    return source.mentions(*function.body, _CHECK)
