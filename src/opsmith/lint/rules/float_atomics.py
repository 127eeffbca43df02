"""float-atomics: sums whose order is another in every run."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Function, Variable
from ..rule import Problem, rule
from ..source import Source

_ADDS = {
    "atomicAdd", "atomicAdd_block", "atomicAdd_system", "gpuAtomicAdd", "gpuAtomicAddNoReturn", "fastAtomicAdd",
}  # fmt: skip
FLOATS = {
    "float", "double", "half", "__half", "half2", "__half2", "Half", "nv_bfloat16", "__nv_bfloat16", "__nv_bfloat162",
    "BFloat16", "float2", "float4", "double2",
}  # fmt: skip
_FLOAT_BY_NAME = {"scalar_t", "scalar", "accscalar_t", "acc_t", "opmath_t", "float_t"}


@rule("Floating-point sums depend on their order, and atomics add in a different order in every run.")
def float_atomics(source: Source) -> Iterator[Problem]:
    """atomicAdd on float, double or a half type, in device or in shared memory."""
    for name in _ADDS:
        for call in source.code.calls(name):
            function = source.function_at(call.name)
            if function is None or function.kind == "host" or not call.arguments:
                continue
            target = _target(function, *call.arguments[0])
            if target is not None and _is_float(source, function, target):
                message = (
                    f"{function.name} adds to {target.name} ({target.type[-1]}) in the order in which threads arrive: "
                    "the result differs from run to run."
                )
                remedy = (
                    "Add within a block in a fixed order, write one sum per block, and add those in a second kernel."
                )
                yield Problem(source.code, call.name, message, remedy)


def _target(function: Function, first: int, last: int) -> Variable | None:
    """The variable whose memory is added to: `out` in &out[i], out + i, &out."""
    code = function.code
    while first < last and code.texts[first] in ("&", "("):
        first += 1
    if code.at(first + 1) in (".", "->", "::", "("):
        return None  # a member, or a cast
    return function.variables.at(first)


def _is_float(source: Source, function: Function, variable: Variable) -> bool:
    words = set(variable.type)
    if words & (FLOATS | _FLOAT_BY_NAME):
        return True
    templates = {word for word in words if function.template_parameters.get(word) in (("typename",), ("class",))}
    launched_on = {
        text
        for launch in source.launches
        if launch.kernel == function.name and launch.grid is not None
        for text in source.code.texts[launch.index : launch.grid[0]]
    }
    return bool(templates and launched_on & (FLOATS | _FLOAT_BY_NAME))
