"""The languages in which kernels are launched from Python: which of them a kernel's function is written in, and what
opsmith does with it there.

A language's module (triton.py, numba.py, cuda_source) has `used_by(function)` and `emulated(function)`. It is imported
where the language itself has been: to find out that a function does not use Triton, Triton need not be there.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from . import emulation
from .deferred import Deferred, imported
from .native import NativeFunction


class Language(NamedTuple):
    name: str
    package: str  # as pip knows it
    modules: tuple[str, ...]  # that must be there
    loaded: str  # the module without which no kernel in this language exists in this process
    implementation: str


TRITON = Language("Triton", "triton", ("triton",), "triton.runtime.jit", ".triton")
NUMBA = Language("Numba", "numba-cuda", ("numba", "numba_cuda"), f"{__package__}.numba", ".numba")
CUDA = Language("CUDA C++", "'opsmith[cuda13]'", (), f"{__package__}.cuda_source", ".cuda_source")
LANGUAGES = (TRITON, NUMBA, CUDA)
PYTHON = "Python"


def written_in(function: Any) -> list[Language]:
    """The languages of the kernels that a function launches."""
    if isinstance(function, Deferred):
        return [function.language]
    return [language for language in LANGUAGES if language.loaded in sys.modules and _used_by(language, function)]


def name_of(function: Any) -> str:
    """'Triton'; 'Python' where a function launches no kernel that opsmith knows of."""
    return " and ".join(language.name for language in written_in(function)) or PYTHON


def _used_by(language: Language, function: Any) -> bool:
    return bool(_module(language).used_by(function))


def emulated(function: Any) -> Callable[..., Any] | NativeFunction | None:
    """The function as it runs on CPU tensors, with its kernels emulated; None where it has none that can be."""
    if isinstance(function, NativeFunction):
        return function.emulated()
    if not written_in(function):
        return None

    @functools.wraps(function, updated=())
    def launched(*args: Any, **keywords: Any) -> Any:
        author = imported(function)
        for language in written_in(author):
            author = _module(language).emulated(author)
        # A backward may run after the block has ended in which its forward was recorded.
        with emulation.entered(emulation.state.settings):
            return author(*args, **keywords)

    return launched


def launching(function: Any) -> Any:
    """A kernel's function as it runs on a GPU: where it launches Triton kernels, with words for what goes wrong."""
    if TRITON not in written_in(function):
        return function
    if not isinstance(function, Deferred):
        return _module(TRITON).launching(function)

    @functools.cache
    def told() -> Callable[..., Any]:
        return _module(TRITON).launching(imported(function))  # type: ignore[no-any-return]

    @functools.wraps(function, updated=())
    def launched(*args: Any, **keywords: Any) -> Any:
        return told()(*args, **keywords)

    return launched


def check(name: str, function: Any) -> None:
    """Refuses, in the name of an op, a function that cannot be right."""
    if "numba.cuda.dispatcher" in sys.modules and not isinstance(function, Deferred):
        _module(NUMBA).refuse_bare_launches(name, function)


def _module(language: Language) -> Any:
    assert language.implementation is not None
    return importlib.import_module(language.implementation, __package__)
