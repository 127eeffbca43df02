"""What every error has: a common base, and words for what it names."""

from __future__ import annotations

import copyreg
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any


class OpsmithError(Exception):
    """The base of every error opsmith raises."""

    def __reduce__(self) -> tuple[object, ...]:
        # These constructors take facts and compose the message, while Exception's own pickling would call them with the
        # message alone: an error from a worker process must arrive as itself.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class OpsmithWarning(UserWarning):
    """The base of every warning opsmith gives: something works, but by a slower road, and the message names it."""


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
