"""The languages in which kernels are launched from Python: which of them a function launches, and how it runs.

A language's module (triton.py, numba.py, cuda_source) has `used_by(function)`. It is imported only once the language
itself is loaded: without Triton in the process, no function uses Triton.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from .._lazy import import_by_name
from ..errors import LanguageMissingError, described
from . import emulation
from .native import NativeFunction


class Language(NamedTuple):
    name: str
    package: str  # for pip
    modules: tuple[str, ...]  # without which it is not installed
    loaded: str  # the module without which this process has no kernel in this language
    implementation: str


TRITON = Language("Triton", "triton", ("triton",), "triton.runtime.jit", ".triton")
NUMBA = Language("Numba", "numba-cuda", ("numba", "numba_cuda"), f"{__package__}.numba", ".numba")
CUDA = Language("CUDA C++", "'opsmith[cuda13]'", (), f"{__package__}.cuda_source", ".cuda_source")
LANGUAGES = (TRITON, NUMBA, CUDA)
PYTHON = "Python"


class Deferred:
    """A kernel's function in a module that is imported when it is first used, since that imports its language:
    `Deferred("mylib.triton_kernels", "forward", TRITON)`."""

    def __init__(self, module: str, name: str, language: Language) -> None:
        self.module = module
        self.language = language
        self.__name__ = name

    def require(self) -> None:
        """Raises LanguageMissingError if the language is not installed."""
        if "function" not in self.__dict__ and not all(map(importlib.util.find_spec, self.language.modules)):
            raise LanguageMissingError(f"The kernel {self}", self.language.name, self.language.package)

    @cached_property
    def function(self) -> Callable[..., Any]:
        self.require()
        function: Callable[..., Any] = getattr(import_by_name(self.module), self.__name__)
        return function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    def __str__(self) -> str:
        """'forward (triton_kernel.py:30)', also where the module cannot be imported."""
        if "function" in self.__dict__:
            return described(self.function)
        spec = importlib.util.find_spec(self.module)
        if spec is None or spec.origin is None:
            return self.__name__
        with open(spec.origin, encoding="utf-8") as source:
            for number, line in enumerate(source, start=1):
                if re.match(rf"def {self.__name__}\b", line):
                    return f"{self.__name__} ({os.path.basename(spec.origin)}:{number})"
        return self.__name__


def imported(function: Any) -> Any:
    """The function itself."""
    return function.function if isinstance(function, Deferred) else function


def written_in(function: Any) -> list[Language]:
    """The languages of the kernels that a function launches."""
    if isinstance(function, Deferred):
        return [function.language]
    loaded = [language for language in LANGUAGES if language.loaded in sys.modules]
    return [language for language in loaded if _module(language).used_by(function)]


def name_of(function: Any) -> str:
    """'Triton'; 'Python' for a function that launches no kernel that opsmith knows of."""
    return " and ".join(language.name for language in written_in(function)) or PYTHON


def emulated(function: Any) -> Callable[..., Any] | NativeFunction | None:
    """The function as it runs on CPU tensors, with its kernels emulated; None if it has no kernel that can be."""
    if isinstance(function, NativeFunction):
        return function.emulated()
    if not written_in(function):
        return None

    @functools.wraps(function, updated=())
    def launched(*args: Any, **keywords: Any) -> Any:
        author = imported(function)
        if TRITON in written_in(author):  # launches in the other languages check themselves whether to emulate
            author = _module(TRITON).emulated(author)
        # A backward may run after the end of the block that recorded its forward.
        with emulation.entered(emulation.state.settings):
            return author(*args, **keywords)

    return launched


def launching(function: Any) -> Any:
    """A kernel's function as it runs on a GPU: if it launches Triton kernels, with opsmith's errors."""
    return _module(TRITON).launching(function) if TRITON in written_in(function) else function


def check(name: str, function: Any) -> None:
    """Raises RegistrationError, which names the op, for a function that cannot be a kernel."""
    if "numba.cuda.dispatcher" in sys.modules and not isinstance(function, Deferred):
        _module(NUMBA).refuse_bare_launches(name, function)


def _module(language: Language) -> Any:
    return import_by_name(language.implementation, __package__)
