"""float-atomics: sums whose order is another in every run."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text.functions import Function
from ..rule import Problem, rule
from ..source import Source
from ..variables import Variable

_ADDS = {
    "atomicAdd", "atomicAdd_block", "atomicAdd_system", "gpuAtomicAdd", "gpuAtomicAddNoReturn", "fastAtomicAdd",
}  # fmt: skip
FLOATS = {
    "float", "double", "half", "__half", "half2", "__half2", "Half", "nv_bfloat16", "__nv_bfloat16", "__nv_bfloat162",
    "BFloat16", "float2", "float4", "double2",
}  # fmt: skip
_FLOAT_BY_NAME = {"scalar_t", "scalar", "accscalar_t", "acc_t", "opmath_t", "float_t"}


@rule("Floating-point sums depend on their order, and atomics have another order in every run.")
def float_atomics(source: Source) -> Iterator[Problem]:
    """atomicAdd on float, double or a half type, in device or in shared memory.

    Bad:

        __global__ void sum(const float* x, float* total, int64_t n) {
          const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
          if (i < n) atomicAdd(total, x[i]);
        }

    Good:

        __global__ void count(const float* x, int* positive, int64_t n) {
          const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
          if (i < n && x[i] > 0) atomicAdd(positive, 1);
        }
    """
    code = source.code
    for name in sorted(_ADDS):
        for call in code.calls(name):
            function = source.function_at(call.name)
            if function is None or function.kind == "host" or not call.arguments:
                continue
            target = _target(source, function, *call.arguments[0])
            if target is not None and _is_float(source, function, target):
                yield Problem(
                    code,
                    call.name,
                    f"{function.name} adds to {target.name} ({target.type[-1]}) in whatever order threads come: "
                    "the result differs from run to run.",
                    "Add within a block in a fixed order, write a sum a block, and add those in a second kernel.",
                )


def _target(source: Source, function: Function, first: int, last: int) -> Variable | None:
    """The variable whose memory is added to: `out` in &out[i], out + i, &out."""
    code = source.code
    while first < last and code.texts[first] in ("&", "("):
        first += 1
    if code.at(first + 1) in (".", "->", "::", "("):
        return None  # a member, or a cast
    return source.variables(function).at(first)


def _is_float(source: Source, function: Function, variable: Variable) -> bool:
    words = set(variable.type)
    if words & FLOATS or words & _FLOAT_BY_NAME:
        return True
    templates = {word for word in words if function.template_parameters.get(word) in (("typename",), ("class",))}
    return bool(templates) and _is_launched_on_floats(source, function.name)


def _is_launched_on_floats(source: Source, kernel: str) -> bool:
    for launch in source.launches:
        if launch.kernel == kernel:
            words = source.code.texts[launch.index : launch.grid[0] if launch.grid else launch.index]
            if FLOATS.intersection(words) or _FLOAT_BY_NAME.intersection(words):
                return True
    return False
