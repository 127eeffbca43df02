"""float-only: elements read as one type, whatever their dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text.code import Code
from ...cuda_text.functions import Function
from ..rule import Problem, rule
from ..source import Source
from .float_atomics import FLOATS

_DATA = ("data_ptr", "const_data_ptr", "mutable_data_ptr")
_TYPES = FLOATS | {"int", "long", "int32_t", "int64_t", "uint8_t", "bool", "char"}
_CHECK = re.compile(r"scalar_type|ScalarType|is_floating_point|(?:AT|THO)_DISPATCH\w*|\.dtype(?:\(\)|<)")


@rule("A pointer of a fixed type reads other dtypes as rubbish, or refuses them in words that name no argument.")
def float_only(source: Source) -> Iterator[Problem]:
    """A parameter's elements taken as one floating-point type, where neither function nor callers ask its dtype.

    `data_ptr<float>()` raises for another dtype; a cast of `data_ptr()` does not even do that.

    Bad:

        void scale(const torch::Tensor& x) { launch_scale(x.data_ptr<float>(), x.numel()); }

    Bad:

        void scale(const torch::Tensor& x) { launch_scale(static_cast<float*>(x.data_ptr()), x.numel()); }

    Good:

        void scale(const torch::Tensor& x) {
          TORCH_CHECK(x.scalar_type() == torch::kFloat32, "scale: x must be float32, is ", x.scalar_type());
          launch_scale(x.data_ptr<float>(), x.numel());
        }

    Good:

        void scale(const torch::Tensor& x) {
          AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", [&] {
            launch_scale<scalar_t>(x.data_ptr<scalar_t>(), x.numel());
          });
        }
    """
    code = source.code
    for function in source.host_functions:
        places = sorted(index for word in _DATA for index in code.words.get(word, ()) if index in function)
        for index in places:
            read = _read_as(source, function, index)
            if read is None:
                continue
            tensor, type, cast = read
            if not source.holds(function, index, _is_asked):
                if cast:
                    message = f"{tensor} is read as {type}, whatever its dtype is."
                else:
                    message = f"{function.name} takes {type} alone, and no message of its own says so."
                yield Problem(
                    code,
                    index - 2,
                    message,
                    f'Dispatch on {tensor}.scalar_type(), or TORCH_CHECK(it, "{tensor} must be ...").',
                )
            break


def _read_as(source: Source, function: Function, index: int) -> tuple[str, str, bool] | None:
    """The parameter whose elements are taken, the type they are taken as, and whether by a cast."""
    code = source.code
    if code.at(index - 1) not in (".", "->"):
        return None
    variables = source.variables(function)
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
    cast = code.at(index + 1) != "<"
    if cast:
        words = [text for text in _cast_before(code, name) if text in _TYPES]
    else:
        words = [text for text in code.texts[index + 2 : code.template_end(index + 1)] if text in FLOATS]
    return (variable.name, words[-1], cast) if words else None


def _cast_before(code: Code, index: int) -> list[str]:
    """The type in `static_cast<float*>(x` and `(float*)x`."""
    before = index - 1
    if code.at(before) == "(":
        before -= 1
        name = code.before_template(before)
        return code.texts[name + 2 : before] if code.at(name).endswith("_cast") else []
    if code.at(before) == ")":
        return code.texts[code.partner[before] + 1 : before]
    return []


def _is_asked(source: Source, function: Function, _: int) -> bool:
    return source.mentions(*function.body, _CHECK)
