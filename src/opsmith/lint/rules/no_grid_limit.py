"""no-grid-limit: a grid whose y or z is a tensor's size."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text.code import Range
from ...cuda_text.functions import Function
from ...cuda_text.launches import Launch
from ..rule import Problem, rule
from ..source import SIZES, Source


@rule("Along y and z a grid has at most 65535 blocks, and a tensor may have more rows.")
def no_grid_limit(source: Source) -> Iterator[Problem]:
    """A block a row along y or z, where the number of rows is compared with nothing.

    Bad:

        void scale(const torch::Tensor& x, float* out, cudaStream_t stream) {
          const c10::cuda::CUDAGuard guard(x.device());
          if (x.numel() == 0) return;
          const dim3 grid(columns / 256, x.size(0));
          scale_kernel<<<grid, 256, 0, stream>>>(out);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }

    Good:

        void scale(const torch::Tensor& x, float* out, cudaStream_t stream) {
          const c10::cuda::CUDAGuard guard(x.device());
          if (x.numel() == 0) return;
          const dim3 grid(x.size(0), columns / 256);
          scale_kernel<<<grid, 256, 0, stream>>>(out);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }
    """
    told = set()
    for function, launch in source.host_launches:
        for axis, part in _beyond_x(source, function, launch):
            if part[0] not in told and _is_unlimited(source, function, part):
                told.add(part[0])
                size = source.code.spelled(*part)
                yield Problem(
                    source.code,
                    part[0],
                    f"The grid of {launch.kernel} is {size} along {axis}, where 65535 blocks are the most.",
                    "Put it along x, which takes 2147483647, or let each block go through several.",
                )


def _beyond_x(source: Source, function: Function, launch: Launch) -> Iterator[tuple[str, Range]]:
    """What a grid is along y and z: in `dim3(a, b, c)`, in the variable that holds it, in opsmith's `{a, b, c}`."""
    code = source.code
    if launch.grid is None:
        return
    first, last = launch.grid
    if code.at(first) == "dim3" and code.at(first + 1) in ("(", "{"):
        parts = code.split(first + 2, code.closing(first + 1, last))
    elif code.at(first) == "{":
        parts = code.split(first + 1, code.closing(first, last))
    else:
        variable = source.variables(function).at(first) if last == first + 1 else None
        if variable is None or variable.type != ("dim3",) or len(variable.definitions) != 1:
            return
        first, last = variable.definitions[0]
        if code.at(first) == "dim3":  # dim3 grid = dim3(a, b)
            first, last = first + 2, code.closing(first + 1, last)
        parts = code.split(first, last)
    yield from zip("yz", parts[1:3], strict=False)


def _is_unlimited(source: Source, function: Function, part: Range) -> bool:
    code, variables = source.code, source.variables(function)
    words = variables.origins(*part)
    if not words & SIZES or words & {"min", "clamp", "ceil_div", "div_up", "DIVUP", "CEIL_DIV"}:
        return False
    used = {each for variable in variables.used_in(*part) for each in variables.sources_of(variable)}
    own = {variable for variable in used if not variable.parameter}
    ranges = [part, *(definition for variable in used for definition in variable.definitions)]
    if any(not {"/", ">"}.isdisjoint(code.texts[first:last]) for first, last in ranges):
        return False  # divided or shifted: a block takes many rows
    first, last = function.body
    if any(text in ("65535", "65536", "0xffff", "maxGridSize") for text in code.texts[first:last]):
        return False
    spelled = code.spelled(*part)
    for comparison in code.comparisons(first, last):
        for operand in code.operands(comparison):
            is_its = variables.used_in(*operand) & own or code.spelled(*operand) == spelled
            if is_its and "0" not in code.texts[slice(*code.operands(comparison)[1])]:  # rows == 0 is no limit
                return False
    return True
