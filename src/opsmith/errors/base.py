"""The base of every error, and how messages show functions, lists and source lines."""

from __future__ import annotations

import copyreg
import inspect
import linecache
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any


class OpsmithError(Exception):
    """The base of every error opsmith raises."""

    def __reduce__(self) -> tuple[object, ...]:
        # These constructors take facts and compose the message, while Exception's own pickling would call them with the
        # message alone: an error from a worker process must arrive as itself.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class OpsmithWarning(UserWarning):
    """The base of every warning: something works, but slowly or in part, and the message says why."""


def described(function: Callable[..., Any]) -> str:
    """'mish (activations.py:12)': a function by its name and the author's own line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    title = getattr(function, "__name__", repr(function))
    return title if code is None else f"{title} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def listed(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items) or "nothing"


def plural(count: int, noun: str) -> str:
    """'1 op', '12 ops'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def tail(text: str, lines: int) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


_LIBRARIES = {"opsmith", "torch", "triton", "numba", "numba_cuda", "contextlib", "functools", "threading", "concurrent"}


def author_place(error: BaseException | None = None) -> tuple[str, int] | tuple[None, None]:
    """(file, line) of the author's innermost line that is running, or that raised `error`. The kernels of opsmith.ops
    count as an author's."""
    frames = list(traceback.walk_stack(None) if error is None else traceback.walk_tb(error.__traceback__))
    for frame, line in frames if error is None else reversed(frames):
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _LIBRARIES or module.startswith("opsmith.ops."):
            return frame.f_code.co_filename, line
    return None, None


def source_line(file: str | None, line: int | None) -> str:
    """'train.py:12: cu.scale[1, 256](x, y, n)'; '' without a file, and no text if the file cannot be read."""
    if file is None or line is None:
        return ""
    return f"{os.path.basename(file)}:{line}: {linecache.getline(file, line).strip()}".removesuffix(": ")


def with_lines(message: str, *lines: str) -> str:
    """A message, then the author's line that is running, then other source lines that it is about."""
    return "\n".join([message, *(f"  {line}" for line in (source_line(*author_place()), *lines) if line)])
