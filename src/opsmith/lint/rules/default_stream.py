"""default-stream: work that is not on torch's current stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from ...cuda_text import Code, Function, Range, launches_in
from ..rule import Problem, rule
from ..source import Source

_NULL = {"0", "0x0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamPerThread", "cudaStreamDefault"}
_AROUND_NULL = {"(", ")", "{", "}", "<", ">", "cudaStream_t", "CUstream", "static_cast", "reinterpret_cast"}

# Position of the stream among the arguments; beyond them where the function has no parameter for it.
_MEMORY = {"cudaMemcpyAsync": 4, "cudaMemsetAsync": 3, "cudaMemcpy2DAsync": 7, "cudaMemset": 99, "cudaMemset2D": 99}
_THRUST = {
    "adjacent_difference", "all_of", "any_of", "binary_search", "copy", "copy_if", "copy_n", "count", "count_if",
    "equal", "exclusive_scan", "exclusive_scan_by_key", "fill", "fill_n", "find", "find_if", "for_each",
    "for_each_n", "gather", "generate", "inclusive_scan", "inclusive_scan_by_key", "inner_product", "is_sorted",
    "lower_bound", "max_element", "merge", "min_element", "minmax_element", "none_of", "partition", "reduce",
    "reduce_by_key", "remove", "remove_if", "replace", "replace_if", "reverse", "scatter", "sequence", "sort",
    "sort_by_key", "stable_sort", "stable_sort_by_key", "swap_ranges", "tabulate", "transform",
    "transform_exclusive_scan", "transform_inclusive_scan", "transform_reduce", "uninitialized_fill", "unique",
    "unique_by_key", "upper_bound",
}  # fmt: skip
_STREAM = re.compile(r"\w*stream\w*", re.IGNORECASE)
_CONFIGURATION = re.compile("cudaLaunchConfig_t")
_ITERATORS = {"begin", "cbegin", "device_pointer_cast", "device_ptr", "device_vector", "make_counting_iterator"}

_WHY = "if another stream is current (torch.cuda.stream, a CUDA graph), it runs too early or too late."


@rule("Work on the default stream does not wait for torch's work on its current stream, nor the other way round.")
def default_stream(source: Source) -> Iterator[Problem]:
    """A launch, a copy, a call of Thrust or CUB without a stream or with stream 0. Not in programs with a `main`."""
    if source.is_program:
        return
    yield from _launches(source)
    for function in source.host_functions:
        found = chain(_launch_configurations(source, function), _memory(function), _thrust(function), _cub(function))
        for index, name, how in found:
            yield Problem(source.code, index, f"{name} goes to the default stream: {_WHY}", _remedy(source, how))


def _remedy(source: Source, how: str) -> str:
    if source.is_torch:
        return how.format(stream="at::cuda::getCurrentCUDAStream()")
    return "Take a cudaStream_t from the caller: " + how.format(stream="stream")


def _launches(source: Source) -> Iterator[Problem]:
    places = [(source.code, launch, function) for function, launch in source.host_launches]
    of_macros = [(macro.code, launch, None) for macro in source.macros for launch in launches_in(macro.code)]
    for code, launch, function in [*places, *of_macros]:
        if not launch.checked and (launch.stream is None or _is_null(code, launch.stream, function)):
            how = "<<<grid, block, 0, {stream}>>>" if launch.form == "<<<" else launch.form + "(..., {stream})"
            message = f"{launch.kernel} is launched on the default stream: {_WHY}"
            yield Problem(code, launch.index, message, _remedy(source, how))


_Call = tuple[int, str, str]
"""A call on the default stream: its token, its name, and how it takes a stream."""


def _launch_configurations(source: Source, function: Function) -> Iterator[_Call]:
    """cudaLaunchKernelEx takes its stream from a cudaLaunchConfig_t."""
    if source.mentions(*function.body, _CONFIGURATION) and not source.mentions(*function.body, _STREAM):
        for name in ("cudaLaunchKernelEx", "cudaLaunchKernelExC"):
            for call in source.code.calls(name, function.body):
                yield call.name, f"{name} with no stream in its configuration", "config.stream = {stream};"


def _memory(function: Function) -> Iterator[_Call]:
    for name, position in _MEMORY.items():
        for call in function.code.calls(name, function.body):
            stream = call.arguments[position : position + 1]
            if not stream or _is_null(function.code, stream[0], function):
                yield call.name, name, name.removesuffix("Async") + "Async(..., {stream})"


def _thrust(function: Function) -> Iterator[_Call]:
    code = function.code
    for index in code.words.get("thrust", ()):
        name = code.at(index + 2)
        call = code.call_at(index + 2)
        if index in function and code.at(index + 1) == "::" and name in _THRUST and call is not None:
            if call.arguments and _has_no_stream(function, *call.arguments[0]):
                yield index, f"thrust::{name}", "thrust::" + name + "(thrust::cuda::par.on({stream}), ...)"


def _has_no_stream(function: Function, first: int, last: int) -> bool:
    """Whether the first argument of a Thrust algorithm is a policy without a stream, or no policy at all."""
    variables = function.variables
    types = {word for variable in variables.used_in(first, last) for word in variable.type}
    words = variables.origins(first, last) | types
    if words & {"on", "seq", "host", "host_vector"} or any("stream" in word.lower() for word in words):
        return False
    is_policy = "thrust" in words and bool(words & {"device", "par", "par_nosync"})
    return is_policy or bool(words & _ITERATORS)


def _cub(function: Function) -> Iterator[_Call]:
    """CUB is called twice, first for the size of its workspace; the second call does the work."""
    code = function.code
    found = {}
    for index in code.words.get("cub", ()):
        call = code.call_at(index + 4)
        is_of_device = code.at(index + 2).startswith("Device") and code.at(index + 1) == code.at(index + 3) == "::"
        if index in function and is_of_device and call is not None:
            words = code.texts[call.opening : call.closing]
            if not any("stream" in word.lower() for word in words):
                found[code.spelled(index, call.name + 1)] = index
    return ((index, name, name + "(..., {stream})") for name, index in found.items())


def _is_null(code: Code, range: Range, function: Function | None) -> bool:
    """Whether a stream is the default one: written so, or a variable that is only ever set to it."""
    if _is_written_null(code, range):
        return True
    variable = function.variables.only(*range) if function is not None else None
    if function is None or variable is None or variable.parameter or not variable.definitions:
        return False
    named = (index for index in code.words[variable.name] if index in function)
    if any(code.at(index - 1) == "&" for index in named):  # cudaStreamCreate(&stream)
        return False
    return all(_is_written_null(code, each) for each in variable.definitions)


def _is_written_null(code: Code, range: Range) -> bool:
    texts = set(code.texts[slice(*range)])
    return "getDefaultCUDAStream" in texts or texts - _AROUND_NULL <= _NULL
