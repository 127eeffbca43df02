"""Launches of kernels: `kernel<<<grid, block, shared, stream>>>(...)`, calls of CUDA's API, opsmith::launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .code import Code, Range

# By name, the positions of the kernel, the grid and the stream among the arguments.
_CALLS = {
    "cudaLaunchKernel": (0, 1, 5),
    "cudaLaunchCooperativeKernel": (0, 1, 5),
    "cuLaunchKernel": (0, 1, 8),
    "cuLaunchCooperativeKernel": (0, 1, 8),
}


@dataclass(frozen=True)
class Launch:
    """One launch. `index` is the first token of the kernel's name, or of the call's; `end` is the last token.

    `grid` and `stream` are None where they are not given; opsmith::launch takes the stream from a tensor. `arguments`
    are those of the kernel, None where they are given by an array of pointers."""

    index: int
    kernel: str
    form: str  # '<<<', or the name of the call
    grid: Range | None
    stream: Range | None
    arguments: list[Range] | None
    end: int

    @property
    def checked(self) -> bool:
        """Whether a failure raises, and the device and the stream are a tensor's."""
        return self.form == "opsmith::launch"


def launches_in(code: Code) -> list[Launch]:
    """Every launch, in order."""
    found = [*_by_chevrons(code), *_by_calls(code), *_by_opsmith(code)]
    return sorted(found, key=lambda launch: launch.index)


def _by_chevrons(code: Code) -> Iterator[Launch]:
    for index, text in enumerate(code.texts):
        if text != "<<<":
            continue
        name, end = code.before_template(index - 1), _chevrons_end(code, index + 1)
        if end is None or not code.is_word(name) or code.texts[name] == "operator":
            continue
        configuration = dict(enumerate(code.split(index + 1, end)))
        closing, arguments = end + 3, None
        if code.at(end + 3) == "(":
            closing = code.closing(end + 3)
            arguments = code.split(end + 4, closing)
        first = name
        while code.at(first - 1) == "::" and code.is_word(first - 2):
            first -= 2
        yield Launch(first, code.texts[name], "<<<", configuration.get(0), configuration.get(3), arguments, closing)


def _chevrons_end(code: Code, first: int) -> int | None:
    """The first of the three `>` that close a launch configuration."""
    for index in code.outside(first, len(code)):
        if code.texts[index : index + 3] == [">", ">", ">"] and code.adjacent(index) and code.adjacent(index + 1):
            if code.at(index + 3) != ">":  # `<<<n, f<x>>>>(`: the first closes a template
                return index
        elif code.texts[index] in (";", ")", "}", "]"):
            return None
    return None


def _by_calls(code: Code) -> Iterator[Launch]:
    for name, (kernel, grid, stream) in _CALLS.items():
        for call in code.calls(name):
            given = call.arguments
            # `cudaError_t cudaLaunchKernel(` is a declaration.
            is_call = not code.is_word(call.name - 1) or code.at(call.name - 1) in ("return", "else", "co_return")
            if len(given) > grid and is_call:
                of_stream = given[stream] if len(given) > stream else None
                kernel_name = _last_word(code, *given[kernel])
                yield Launch(call.name, kernel_name, name, given[grid], of_stream, None, call.closing)


def _by_opsmith(code: Code) -> Iterator[Launch]:
    for call in code.calls("launch"):
        if code.texts[max(call.name - 2, 0) : call.name] != ["opsmith", "::"] or len(call.arguments) < 3:
            continue
        kernel, (first, last), tensor, *arguments = call.arguments
        grid: Range | None = (first, last)
        if code.at(first) == "{":
            grid = next(iter(code.split(first + 1, code.closing(first, last))), None)
        name = _last_word(code, *kernel)
        yield Launch(call.name - 2, name, "opsmith::launch", grid, tensor, arguments, call.closing)


def _last_word(code: Code, first: int, last: int) -> str:
    """The kernel's name in `(void*)scale<float, 4>`."""
    name = code.before_template(last - 1)
    if not first <= name < last or not code.is_word(name):
        words = [index for index in range(first, last) if code.is_word(index)]
        name = words[-1] if words else last - 1
    return code.at(name) or "the kernel"
