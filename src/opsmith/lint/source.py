"""One source and what rules ask about it: its code, macros, functions and launches, and which function calls which.

Sources that are linted together know each other: the host function that has the guard is often in another file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from ..cuda_text import (
    INTEGERS,
    Code,
    Function,
    Launch,
    Lines,
    Preprocessed,
    functions_in,
    is_number,
    launches_in,
    without_comments,
)

_TORCH = re.compile(r"^(torch|ATen|c10|opsmith)/", re.MULTILINE)
_CUDA = re.compile(r"cuda|cub/|thrust/|CUDA|opsmith/launch", re.IGNORECASE)
_TESTS = re.compile(r"^(gtest|gmock|catch2|doctest|benchmark)/", re.MULTILINE)
_CUDA_API = re.compile(r"cu(?:da)?[A-Z]\w*")
_LONGEST_CHAIN = 8
"""Calls within calls that are followed to the caller."""
DATA = ("data_ptr", "const_data_ptr", "mutable_data_ptr")
SIZES = {".numel()", ".size(", ".sizes()"}
"""The words among a value's origins that make it a tensor's size."""

Condition = Callable[["Source", Function, int], bool]
"""Of a token in a function of a source."""


class Source:
    """A file's text, read once."""

    def __init__(self, text: str, path: str = "") -> None:
        self.text = text
        self.path = path
        self.lines = Lines(text)
        parts = Preprocessed(text)
        self.code = parts.code
        self.comments = parts.comments
        self.directives = parts.directives
        self.macros = parts.macros
        self.includes = "\n".join(parts.includes)
        self.peers: Sequence[Source] = (self,)
        """The sources that are linted together, this one included."""
        self._reached: dict[str, frozenset[str]] = {}

    @cached_property
    def bare(self) -> str:
        """The text with spaces in place of comments."""
        return without_comments(self.text)

    @cached_property
    def codes(self) -> list[Code]:
        """The code and the bodies of macros."""
        return [self.code, *(macro.code for macro in self.macros)]

    # --- Its kind ---------------------------------------------------------------------------------------------------

    @cached_property
    def is_torch(self) -> bool:
        """Whether it works on torch's tensors."""
        return bool(_TORCH.search(self.includes) or {"torch", "at", "Tensor"} & self.code.words.keys())

    @cached_property
    def is_cuda(self) -> bool:
        """Whether it is for a GPU: by its file name, its headers, or a kernel in it."""
        is_named = self.path.endswith((".cu", ".cuh"))
        return bool(is_named or "__global__" in self.code.words or self.launches or _CUDA.search(self.includes))

    @cached_property
    def is_program(self) -> bool:
        """Whether it is a program or a test: these own the GPU, and may use any stream and wait."""
        return bool(_TESTS.search(self.includes)) or any(each.name == "main" for each in self.host_functions)

    # --- Functions and launches -------------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> list[Function]:
        return functions_in(self.code)

    @cached_property
    def host_functions(self) -> list[Function]:
        """Host functions, except replacements of CUDA's own."""
        return [each for each in self.functions if each.kind == "host" and not _CUDA_API.fullmatch(each.name)]

    @cached_property
    def kernels(self) -> dict[str, Function]:
        return {function.name: function for function in self.functions if function.kind == "kernel"}

    def function_at(self, index: int) -> Function | None:
        """The function whose body a token of the code is in."""
        number = bisect_right(self.functions, index, key=lambda function: function.body[0]) - 1
        return self.functions[number] if number >= 0 and index in self.functions[number] else None

    @cached_property
    def constants(self) -> dict[str, int | None]:
        """Names of numbers at file scope, macros and constexpr, and how many bits they have."""
        found: dict[str, int | None] = {}
        for macro in self.macros:
            texts = macro.code.texts
            if not macro.parameters and texts and all(map(_is_integer_or_operator, texts)):
                found[macro.name] = 64 if any(text.lower().endswith("l") for text in texts) else 32
        for index in self.code.words.get("constexpr", ()):
            words = self.code.texts[index + 1 : index + 5]
            if "=" in words[2:] and self.function_at(index) is None:
                widths = [INTEGERS[word] for word in words if word in INTEGERS]
                found[words[words.index("=") - 1]] = max(widths, default=None)
        return found

    @cached_property
    def launches(self) -> list[Launch]:
        """The launches in the code, without those in macros."""
        return launches_in(self.code)

    @cached_property
    def host_launches(self) -> list[tuple[Function, Launch]]:
        """The launches in host functions."""
        found = [(self.function_at(launch.index), launch) for launch in self.launches]
        return [(function, launch) for function, launch in found if function is not None and function.kind == "host"]

    @cached_property
    def launchers_of_pointers(self) -> set[str]:
        """Functions without tensors that launch, or call one that does: their callers choose the GPU."""
        found: set[str] = set()
        waiting = [function for function, launch in self.host_launches if not launch.checked]
        while waiting:
            function = waiting.pop()
            if function.name not in found and not has_tensors(function):
                found.add(function.name)
                waiting += [caller for caller, _ in self.calls(function.name)]
        return found

    # --- Who calls whom ---------------------------------------------------------------------------------------------

    def calls(self, name: str) -> Iterator[tuple[Function, int]]:
        """The host functions that call a function of that name, and where."""
        for call in self.code.calls(name):
            caller = self.function_at(call.name)
            if caller is not None and caller.kind == "host":
                yield caller, call.name

    def _callers(self, function: Function) -> Iterator[tuple[Source, Function, int]]:
        """The host functions of all peers that call a function of this source, and where."""
        is_static = "static" in self.code.texts[slice(*function.head)]
        for source in self.peers:
            # One that defines the name itself calls its own.
            if source is self or not (is_static or function.name in source.defined):
                yield from (
                    (source, caller, at) for caller, at in source.calls(function.name) if caller is not function
                )

    def holds(
        self, function: Function, index: int, condition: Condition, seen: frozenset[Function] = frozenset()
    ) -> bool:
        """Whether a condition holds at a token of a function, or at every call of that function, and so on up."""
        if condition(self, function, index):
            return True
        if len(seen) > _LONGEST_CHAIN:
            return False
        seen |= {function}
        callers = [each for each in self._callers(function) if each[1] not in seen]
        return bool(callers) and all(source.holds(caller, at, condition, seen) for source, caller, at in callers)

    @cached_property
    def defined(self) -> dict[str, set[str]]:
        """The macros and functions of this source by name, and the words in them."""
        found: dict[str, set[str]] = {}
        for macro in self.macros:
            found.setdefault(macro.name, set()).update(macro.code.words_in(0, len(macro.code)))
        for function in self.functions:
            found.setdefault(function.name, set()).update(self.code.words_in(*function.body))
        return found

    @cached_property
    def _defined_anywhere(self) -> dict[str, set[str]]:
        """The same of all peers. This source comes first, then the others in order."""
        found: dict[str, set[str]] = {}
        for source in reversed([self, *self.peers]):
            found.update(source.defined)
        return found

    def knows(self, name: str) -> bool:
        """Whether a macro or a function of that name is defined in one of the sources."""
        return name in self._defined_anywhere

    def reached(self, name: str) -> frozenset[str]:
        """A word and, of a macro or a function, the words in it, in those that it uses, and so on."""
        if name not in self._reached:
            words, waiting = {name}, [name]
            while waiting:
                new = self._defined_anywhere.get(waiting.pop(), set()) - words
                words |= new
                waiting += new
            self._reached[name] = frozenset(words)
        return self._reached[name]

    def mentions(self, first: int, last: int, wanted: re.Pattern[str]) -> bool:
        """Whether a wanted word is in a range of the code, or in a macro or a function that is named there."""
        words = self.code.words_in(first, last)
        return any(map(wanted.fullmatch, words.union(*map(self.reached, words))))


def tensor_of(function: Function) -> str:
    """The name of a parameter that is a tensor, or ''."""
    return next((parameter.name for parameter in function.parameters if "Tensor" in parameter.type), "")


def has_tensors(function: Function) -> bool:
    """Whether a function works on tensors, not only on pointers."""
    return bool(tensor_of(function)) or not function.texts.isdisjoint(DATA)


def _is_integer_or_operator(text: str) -> bool:
    return text in "()+-*/" or (is_number(text) and not re.search(r"[.]|[^0x]f$", text))
