"""Launches of kernels: `kernel<<<grid, block, shared, stream>>>(...)`, CUDA's calls that do it, opsmith::launch."""

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
    """One launch. `index` is the token that it is shown at: the kernel's name, or the call's.

    `grid` and `stream` are None where they are not given; opsmith::launch takes the stream from a tensor. `arguments`
    are those of the kernel, None where they are given by an array of pointers."""

    index: int
    kernel: str
    form: str  # '<<<', or the name of the call
    grid: Range | None
    stream: Range | None
    arguments: tuple[Range, ...] | None
    end: int

    @property
    def checked(self) -> bool:
        """Whether a failure raises without more ado, and the device and the stream are a tensor's own."""
        return self.form == "opsmith::launch"


def launches_in(code: Code) -> list[Launch]:
    """Every launch, in order."""
    found = [*_by_chevrons(code), *_by_calls(code), *_by_opsmith(code)]
    return sorted(found, key=lambda launch: launch.index)


def _by_chevrons(code: Code) -> Iterator[Launch]:
    for index, text in enumerate(code.texts):
        if text != "<<<" or code.at(index - 1) == "operator":
            continue
        name = code.before_template(index - 1)
        if not code.is_word(name):
            continue
        end = _chevrons_end(code, index + 1)
        if end is None:
            continue
        parts = code.split(index + 1, end)
        arguments = closing = None
        if code.at(end + 3) == "(":
            closing = code.closing(end + 3, len(code))
            arguments = tuple(code.split(end + 4, closing))
        yield Launch(
            _qualified(code, name),
            code.texts[name],
            "<<<",
            parts[0] if parts else None,
            parts[3] if len(parts) > 3 else None,
            arguments,
            closing or end + 3,
        )


def _chevrons_end(code: Code, index: int) -> int | None:
    """The first of the three `>` that close a launch's parameters."""
    while index < len(code):
        text = code.texts[index]
        if code.texts[index : index + 3] == [">", ">", ">"] and code.adjacent(index) and code.adjacent(index + 1):
            if code.at(index + 3) != ">":  # `<<<n, f<x>>>>(`: the first closes a template
                return index
        elif text in ("(", "[", "{"):
            index = code.closing(index, len(code))
        elif text in (";", ")", "}", "]"):
            return None
        index += 1
    return None


def _qualified(code: Code, name: int) -> int:
    """The first token of `ns::kernel`."""
    while code.at(name - 1) == "::" and code.is_word(name - 2):
        name -= 2
    return name


def _by_calls(code: Code) -> Iterator[Launch]:
    for name, (kernel, grid, stream) in _CALLS.items():
        for call in code.calls(name):
            given = call.arguments
            if len(given) > grid and not _is_declaration(code, call.name):
                yield Launch(
                    call.name,
                    _last_word(code, *given[kernel]),
                    name,
                    given[grid],
                    given[stream] if len(given) > stream else None,
                    None,
                    call.closing,
                )


def _is_declaration(code: Code, name: int) -> bool:
    """`cudaError_t cudaLaunchKernel(` declares or defines it."""
    before = code.at(name - 1)
    return code.is_word(name - 1) and before not in ("return", "else", "co_return")


def _by_opsmith(code: Code) -> Iterator[Launch]:
    for call in code.calls("launch"):
        if code.at(call.name - 1) != "::" or code.at(call.name - 2) != "opsmith" or len(call.arguments) < 3:
            continue
        first, last = call.arguments[1]
        geometry = code.split(first + 1, code.closing(first, last)) if code.at(first) == "{" else [(first, last)]
        yield Launch(
            call.name - 2,
            _last_word(code, *call.arguments[0]),
            "opsmith::launch",
            geometry[0] if geometry else None,
            call.arguments[2],
            tuple(call.arguments[3:]),
            call.closing,
        )


def _last_word(code: Code, first: int, last: int) -> str:
    """The kernel's name in `(void*)scale<float, 4>`."""
    name = code.before_template(last - 1)
    if not first <= name < last or not code.is_word(name):
        words = [index for index in range(first, last) if code.is_word(index)]
        name = words[-1] if words else last - 1
    return code.at(name) or "the kernel"
