"""What every error has: a common base, and the author's own source line."""

from __future__ import annotations

import copyreg
import inspect
import linecache
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, NamedTuple

_MOST_DECORATOR_LINES = 20
_EXCEPTION = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt|Exit|Warning|Fault)(: |$)")


class OpsmithError(Exception):
    """The base of every error opsmith raises."""

    def __reduce__(self) -> tuple[object, ...]:
        # These constructors take facts and compose the message, while Exception's own pickling would call them with the
        # message alone: an error from a worker process must arrive as itself.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError, which some mix in, would quote it


class LocatedError(OpsmithError):
    """The base of errors that end with the author's line that is running, then other source lines it is about."""

    def __init__(self, message: str, *lines: object) -> None:
        called = SourceLine.of_call()
        shown = [called] if called is not None and called.text else []  # none in a text that was executed
        super().__init__("\n".join([message, *(f"  {line}" for line in (*shown, *lines) if line)]))


class OpsmithWarning(UserWarning):
    """The base of every warning opsmith gives: something works, but more slowly, and the message says why."""


def warn(warning: OpsmithWarning) -> None:
    """Gives a warning at the author's line that is running, or at the caller's if there is none."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_stack(sys._getframe(1))]
    modules = [module for module in modules if not module.startswith("importlib._bootstrap")]  # not counted
    level = next((level for level, module in enumerate(modules, 2) if not _is_library(module)), 2)
    warnings.warn(warning, stacklevel=level)


class SourceLine(NamedTuple):
    """A line of the author's code."""

    file: str
    number: int
    text: str

    @classmethod
    def at(cls, file: str, number: int) -> SourceLine:
        linecache.checkcache(file)  # a kernel's file may have been edited since its last error
        return cls(file, number, linecache.getline(file, number).strip())

    @classmethod
    def of_call(cls) -> SourceLine | None:
        """The author's innermost line that is running."""
        return cls._innermost(traceback.walk_stack(sys._getframe(1)))

    @classmethod
    def of_error(cls, error: BaseException) -> SourceLine | None:
        """The author's innermost line that raised an error."""
        return cls._innermost(reversed(list(traceback.walk_tb(error.__traceback__))))

    @classmethod
    def _innermost(cls, frames: Iterable[tuple[FrameType, int]]) -> SourceLine | None:
        for frame, line in frames:
            module = str(frame.f_globals.get("__name__"))
            if module.startswith(_STARTED_BY):
                return None  # `opsmith check NAME`, say: no line of the author's is running
            if not _is_library(module):
                return cls.at(frame.f_code.co_filename, line)
        return None

    @property
    def place(self) -> str:
        """'activations.py:12'."""
        return f"{os.path.basename(self.file)}:{self.number}"

    def __str__(self) -> str:
        return f"{self.place}: {self.text}".removesuffix(": ")


def definition(function: Callable[..., Any]) -> SourceLine | None:
    """The line with the `def` of a function, below its decorators; None if it is not a Python function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    first = SourceLine.at(code.co_filename, code.co_firstlineno)
    if not first.text.startswith("@"):
        return first
    below = (SourceLine.at(first.file, first.number + number) for number in range(1, _MOST_DECORATOR_LINES))
    return next((line for line in below if line.text.startswith(("def ", "async def "))), first)


def described(function: Callable[..., Any]) -> str:
    """'mish (activations.py:12)': a function by its name and the line that defines it."""
    title, line = getattr(function, "__name__", repr(function)), definition(function)
    return title if line is None else f"{title} ({line.place})"


def quoted(line: SourceLine | None) -> str:
    """A source line as the end of a message; nothing if its text is not known (exec, an interactive session)."""
    return f"\n  {line}" if line is not None and line.text else ""


def listed(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items) or "nothing"


def plural(count: int, noun: str) -> str:
    """'1 op', '12 ops'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def exception_line(output: str) -> str:
    """'ValueError: the first line of its message', at the end of what a process printed; else its last line, or ''."""
    lines = [line for line in output.splitlines() if line.strip()]
    raised = [line for line in lines if _EXCEPTION.match(line)]
    return (raised or lines or [""])[-1].strip()


def tail(text: str, lines: int) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


_LIBRARIES = {"torch", "triton", "numba", "numba_cuda", "hypothesis"}
_LIBRARIES |= {"contextlib", "functools", "threading", "concurrent"}
_STARTED_BY = ("opsmith.cli", "opsmith.testing")


def _is_library(module: str) -> bool:
    """Whether a module is opsmith's or runs the author's code. Shipped ops and modules count as an author's."""
    package, _, rest = module.partition(".")
    return package in _LIBRARIES or (package == "opsmith" and not rest.startswith(("ops.", "nn.")))
