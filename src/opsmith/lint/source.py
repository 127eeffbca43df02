"""One source, with everything that rules ask of it: code, macros, functions, launches, and who calls whom.

Sources that are linted together know each other: the host function that has the guard is often in another file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..cuda_text.code import Code
from ..cuda_text.functions import INTEGERS, Function, functions_in
from ..cuda_text.launches import Launch, launches_in
from ..cuda_text.preprocessor import Macro, preprocessed
from ..cuda_text.tokens import Lines
from .expressions import Arithmetic
from .variables import Variables

_TORCH = re.compile(r"(torch|ATen|c10|opsmith)/")
_CUDA = re.compile(r"cuda|cub/|thrust/|CUDA|opsmith/launch", re.IGNORECASE)
_TESTS = re.compile(r"(gtest|gmock|catch2|doctest|benchmark)/")
_CUDA_ITSELF = re.compile(r"cu(?:da)?[A-Z]\w*")
_DATA = {"data_ptr", "const_data_ptr", "mutable_data_ptr"}
_LONGEST_CHAIN = 8
"""Calls within calls that are followed up."""
SIZES = {".numel()", ".size(", ".sizes()"}
"""What a tensor's size is asked for by, among a value's origins."""


@dataclass(frozen=True)
class MacroCode:
    """A macro's body, as code."""

    macro: Macro
    code: Code

    @cached_property
    def launches(self) -> list[Launch]:
        return launches_in(self.code)


Condition = Callable[["Source", Function, int], bool]
"""Of a token of a function of a source."""


class Source:
    """A file's text, read once."""

    def __init__(self, text: str, path: str = "") -> None:
        self.text = text
        self.path = path
        self.lines = Lines(text)
        parts = preprocessed(text)
        self.comments = parts.comments
        self.includes = parts.includes
        self.directives = parts.spans
        self.code = Code(parts.code)
        self.macros = [MacroCode(macro, Code(macro.body)) for macro in parts.macros]
        self.macro_names = {macro.name for macro in parts.macros}
        self.peers: Sequence[Source] = (self,)
        """Those that are linted together, itself included."""
        self._variables: dict[int, Variables] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self._reaching: dict[tuple[str, re.Pattern[str]], bool] = {}

    # --- What it is -------------------------------------------------------------------------------------------------

    @cached_property
    def is_torch(self) -> bool:
        """Whether it works on torch's tensors."""
        return any(map(_TORCH.match, self.includes)) or bool({"torch", "at", "Tensor"} & self.code.words.keys())

    @cached_property
    def is_cuda(self) -> bool:
        """Whether it is for a GPU: by its name, its headers, or a kernel in it."""
        if self.path.endswith((".cu", ".cuh")) or "__global__" in self.code.words or self.launches:
            return True
        return any(map(_CUDA.search, self.includes))

    @cached_property
    def is_program(self) -> bool:
        """Whether it is a program or a test: it has the GPU to itself, and its streams and waits are its own affair."""
        return any(map(_TESTS.match, self.includes)) or any(each.name == "main" for each in self.host_functions)

    # --- Functions ----------------------------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> list[Function]:
        return functions_in(self.code)

    @cached_property
    def host_functions(self) -> list[Function]:
        """Those of the author's own. A stand-in for CUDA's own functions goes by its own rules."""
        return [each for each in self.functions if each.kind == "host" and not _CUDA_ITSELF.fullmatch(each.name)]

    @cached_property
    def device_functions(self) -> list[Function]:
        return [function for function in self.functions if function.kind != "host"]

    @cached_property
    def kernels(self) -> dict[str, Function]:
        return {function.name: function for function in self.functions if function.kind == "kernel"}

    @cached_property
    def _bodies(self) -> list[int]:
        return [function.body[0] for function in self.functions]

    def function_at(self, index: int) -> Function | None:
        """The function whose body a token of the code is in."""
        number = bisect_right(self._bodies, index) - 1
        return self.functions[number] if number >= 0 and index in self.functions[number] else None

    def variables(self, function: Function) -> Variables:
        known = self._variables.get(function.index)
        if known is None:
            known = self._variables[function.index] = Variables(function)
        return known

    def arithmetic(self, function: Function) -> Arithmetic:
        return Arithmetic(self.variables(function), self.constants)

    @cached_property
    def constants(self) -> dict[str, int | None]:
        """Names of numbers at file scope, macros and constexpr, and how many bits they have."""
        found: dict[str, int | None] = {}
        for macro in self.macros:
            if not macro.macro.parameters and macro.code.texts and all(_is_number_like(macro.code)):
                found[macro.macro.name] = 64 if any(text.lower().endswith("l") for text in macro.code.texts) else 32
        for index in self.code.words.get("constexpr", ()):
            if self.function_at(index) is None:
                words = self.code.texts[index + 1 : index + 5]
                if "=" in words and words.index("=") > 1:
                    name = words[words.index("=") - 1]
                    widths = [INTEGERS[word] for word in words if word in INTEGERS]
                    found[name] = max(widths) if widths else None
        return found

    # --- Launches -----------------------------------------------------------------------------------------------------

    @cached_property
    def launches(self) -> list[Launch]:
        """Those in the code; those in macros are the macros'."""
        return launches_in(self.code)

    @cached_property
    def host_launches(self) -> list[tuple[Function, Launch]]:
        """Launches from host code. (A kernel may launch another: those go by other rules.)"""
        found = [(self.function_at(launch.index), launch) for launch in self.launches]
        return [(function, launch) for function, launch in found if function is not None and function.kind == "host"]

    def has_tensors(self, function: Function) -> bool:
        """Whether a function works on tensors, or on raw pointers alone."""
        return bool(tensor_of(function)) or not _DATA.isdisjoint(self.code.texts[slice(*function.body)])

    @cached_property
    def launchers_of_pointers(self) -> set[str]:
        """Functions that launch, or call one that does, and have no tensors: it is for callers to choose the GPU."""
        found: set[str] = set()
        waiting = [function for function, launch in self.host_launches if not launch.checked]
        while waiting:
            function = waiting.pop()
            if function.name not in found and not self.has_tensors(function):
                found.add(function.name)
                waiting += [caller for caller, _ in self._calls(function.name)]
        return found

    # --- Who calls whom -----------------------------------------------------------------------------------------------

    def callers(self, function: Function) -> Iterator[tuple[Source, Function, int]]:
        """The host functions that call a function of this source, and where."""
        for source in self.peers:
            # One that defines the name itself calls its own.
            if source is self or (function.name not in source.defined and not self._is_private(function)):
                for caller, index in source._calls(function.name):
                    if caller is not function:
                        yield source, caller, index

    def _calls(self, name: str) -> Iterator[tuple[Function, int]]:
        """The host functions of this source that call one of that name, and where."""
        for index in self.code.words.get(name, ()):
            caller = self.function_at(index)
            if caller is not None and caller.kind == "host" and self.code.call_at(index) is not None:
                yield caller, index

    def _is_private(self, function: Function) -> bool:
        return "static" in self.code.texts[slice(*function.head)]

    def holds(self, function: Function, index: int, condition: Condition) -> bool:
        """Whether a condition holds at a token of a function, or at every call of that function, and so on up."""
        return self._holds(function, index, condition, frozenset())

    def _holds(self, function: Function, index: int, condition: Condition, seen: frozenset[Function]) -> bool:
        if condition(self, function, index):
            return True
        if len(seen) > _LONGEST_CHAIN:
            return False
        seen = seen | {function}
        callers = [each for each in self.callers(function) if each[1] not in seen]
        return bool(callers) and all(source._holds(caller, at, condition, seen) for source, caller, at in callers)

    @cached_property
    def defined(self) -> dict[str, set[str]]:
        """The macros and functions of this source by name, and the words in them."""
        found: dict[str, set[str]] = {}
        for macro in self.macros:
            found.setdefault(macro.macro.name, set()).update(macro.code.words_in(0, len(macro.code)))
        for function in self.functions:
            found.setdefault(function.name, set()).update(self.code.words_in(*function.body))
        return found

    @cached_property
    def _defined_anywhere(self) -> dict[str, set[str]]:
        """The same of all peers; where several have a name, of this source or else of the first."""
        found = dict(self.defined)
        for source in self.peers:
            for name, words in source.defined.items():
                found.setdefault(name, words)
        return found

    def knows(self, name: str) -> bool:
        """Whether a macro or a function of that name is defined in one of the sources."""
        return name in self._defined_anywhere

    def reached(self, name: str) -> frozenset[str]:
        """The words in a macro or a function, and in those that it uses, and so on."""
        known = self._reached.get(name)
        if known is None:
            defined, words = self._defined_anywhere, {name}
            waiting = [name]
            while waiting:
                new = defined.get(waiting.pop(), set()) - words
                words |= new
                waiting += [word for word in new if word in defined]
            known = self._reached[name] = frozenset(words)
        return known

    def mentions(self, first: int, last: int, wanted: re.Pattern[str]) -> bool:
        """Whether a wanted word is in a range of the code, or in a macro or a function that is named there."""
        words = self.code.words_in(first, last)
        return any(map(wanted.fullmatch, words)) or any(
            self._reaches(word, wanted) for word in words if self.knows(word)
        )

    def _reaches(self, name: str, wanted: re.Pattern[str]) -> bool:
        key = name, wanted
        if key not in self._reaching:
            self._reaching[key] = any(map(wanted.fullmatch, self.reached(name)))
        return self._reaching[key]


def tensor_of(function: Function) -> str:
    """The name of a tensor that a function is given, or ''."""
    return next((parameter.name for parameter in function.parameters if "Tensor" in parameter.type), "")


def _is_number_like(code: Code) -> Iterator[bool]:
    for index, text in enumerate(code.texts):
        yield text in "()+-*/" or (code.is_number(index) and not re.search(r"[.]|[^0x]f$", text))
