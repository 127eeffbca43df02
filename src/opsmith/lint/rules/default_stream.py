"""default-stream: work that is not on torch's current stream."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text.code import Code
from ...cuda_text.functions import Function
from ..rule import Problem, rule
from ..source import Source

_NULL = {"0", "0x0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamPerThread", "cudaStreamDefault"}
_AROUND_NULL = {"(", ")", "{", "}", "<", ">", "cudaStream_t", "CUstream", "static_cast", "reinterpret_cast"}

_DEFAULT = "getDefaultCUDAStream"

# Position of the stream among the arguments. None: the call takes no stream, and goes to the default one.
_MEMORY = {
    "cudaMemcpyAsync": 4,
    "cudaMemsetAsync": 3,
    "cudaMemcpy2DAsync": 7,
    "cudaMemset": None,
    "cudaMemset2D": None,
}
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

_WHY = "under another current stream (torch.cuda.stream, a CUDA graph) it runs too early or too late."


@rule("Work on the default stream does not wait for torch's on its current stream, nor torch's for it.")
def default_stream(source: Source) -> Iterator[Problem]:
    """A launch, a copy, a call of Thrust or CUB without a stream, or with stream 0. Programs with a `main` are let be.

    Bad:

        void add(torch::Tensor x, torch::Tensor y) {
          add_kernel<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
        }

    Bad:

        void scale(torch::Tensor x) {
          cudaStream_t stream = 0;
          scale_kernel<<<blocks, threads, 0, stream>>>(x.data_ptr<float>());
        }

    Bad:

        void scale(torch::Tensor x) {
          auto stream = at::cuda::getDefaultCUDAStream();
          scale_kernel<<<blocks, threads, 0, stream>>>(x.data_ptr<float>());
        }

    Bad:

        void sort(thrust::device_ptr<float> keys, int64_t n) {
          thrust::sort(thrust::device, keys, keys + n);
        }

    Good:

        void add(const float* x, float* y, int64_t n, cudaStream_t stream) {
          add_kernel<<<blocks, threads, 0, stream>>>(x, y, n);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }

    Good:

        void sort(float* keys, int64_t n, cudaStream_t stream) {
          thrust::sort(thrust::cuda::par.on(stream), keys, keys + n);
        }
    """
    if source.is_program:
        return
    yield from _launches(source)
    for function in source.host_functions:
        yield from _launch_configurations(source, function)
        yield from _memory(source, function)
        yield from _thrust(source, function)
        yield from _cub(source, function)


def _remedy(source: Source, how: str) -> str:
    whose = "at::cuda::getCurrentCUDAStream()" if source.is_torch else "stream"
    taken = "" if source.is_torch else "Take a cudaStream_t from the caller: "
    return taken + how.format(stream=whose)


def _launches(source: Source) -> Iterator[Problem]:
    places = [(source.code, launch, function) for function, launch in source.host_launches]
    of_macros = [(macro.code, launch, None) for macro in source.macros for launch in macro.launches]
    for code, launch, function in [*places, *of_macros]:
        if launch.checked or (launch.stream is not None and not _is_null(source, code, launch.stream, function)):
            continue
        how = "<<<grid, block, 0, {stream}>>>" if launch.form == "<<<" else launch.form + "(..., {stream})"
        message = f"{launch.kernel} is launched on the default stream: {_WHY}"
        yield Problem(code, launch.index, message, _remedy(source, how))


def _launch_configurations(source: Source, function: Function) -> Iterator[Problem]:
    """cudaLaunchKernelEx takes its stream from a cudaLaunchConfig_t."""
    if source.mentions(*function.body, _STREAM):
        return
    for name in ("cudaLaunchKernelEx", "cudaLaunchKernelExC"):
        for call in source.code.calls(name, function.body):
            if source.mentions(*function.body, _CONFIGURATION):
                message = f"{name} with no stream in its configuration goes to the default stream: {_WHY}"
                yield Problem(source.code, call.name, message, _remedy(source, "config.stream = {stream};"))


def _memory(source: Source, function: Function) -> Iterator[Problem]:
    code = source.code
    for name, position in _MEMORY.items():
        for call in code.calls(name, function.body):
            given = call.arguments
            if position is not None and len(given) > position:
                if not _is_null(source, code, given[position], function):
                    continue
            asynchronous = name if name.endswith("Async") else f"{name}Async"
            message = f"{name} goes to the default stream: {_WHY}"
            yield Problem(code, call.name, message, _remedy(source, asynchronous + "(..., {stream})"))


def _thrust(source: Source, function: Function) -> Iterator[Problem]:
    code = source.code
    first, last = function.body
    for index in code.words.get("thrust", ()):
        name = index + 2
        if not (first <= index < last and code.at(index + 1) == "::" and code.at(name) in _THRUST):
            continue
        call = code.call_at(name)
        if call is not None and call.arguments and _without_stream(source, function, *call.arguments[0]):
            message = f"thrust::{code.at(name)} goes to the default stream: {_WHY}"
            how = "thrust::" + code.at(name) + "(thrust::cuda::par.on({stream}), ...)"
            yield Problem(code, index, message, _remedy(source, how))


def _without_stream(source: Source, function: Function, first: int, last: int) -> bool:
    """Whether the first argument of a Thrust algorithm is a policy without a stream, or no policy at all."""
    variables = source.variables(function)
    types = {word for variable in variables.used_in(first, last) for word in variable.type}
    words = variables.origins(first, last) | types
    if words & {"on", "seq", "host", "host_vector"} or any("stream" in word.lower() for word in words):
        return False
    without = "thrust" in words and bool(words & {"device", "par", "par_nosync"})
    return without or bool(words & _ITERATORS)


def _cub(source: Source, function: Function) -> Iterator[Problem]:
    """CUB is called twice, first for the size of its workspace; the second call is the one that works."""
    code = source.code
    first, last = function.body
    found = {}
    for index in code.words.get("cub", ()):
        if first <= index < last and code.at(index + 1) == "::" and code.at(index + 2).startswith("Device"):
            call = code.call_at(index + 4) if code.at(index + 3) == "::" else None
            if call is not None:
                words = code.texts[call.opening : call.closing]
                if not any("stream" in word.lower() for word in words):
                    found[code.spelled(index, call.name + 1)] = index
    for name, index in found.items():
        message = f"{name} goes to the default stream: {_WHY}"
        yield Problem(code, index, message, _remedy(source, name + "(..., {stream})"))


def _is_null(source: Source, code: Code, range: tuple[int, int], function: Function | None) -> bool:
    first, last = range
    if _is_default(code, range):
        return True
    if function is None or last != first + 1:
        return False
    variable = source.variables(function).at(first)
    if variable is None or variable.parameter or not variable.definitions:
        return False
    begin, end = function.body
    named = (index for index in code.words[variable.name] if begin <= index < end)
    if any(code.at(index - 1) == "&" for index in named):  # cudaStreamCreate(&stream)
        return False
    return all(_is_default(code, each) for each in variable.definitions)


def _is_default(code: Code, range: tuple[int, int]) -> bool:
    texts = set(code.texts[slice(*range)])
    return _DEFAULT in texts or texts - _AROUND_NULL <= _NULL
