"""What verbs print with: the two consoles, the colours of statuses, and the form of an error."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from ..errors import OpsmithError

Parameters = ParamSpec("Parameters")

# highlight=False: Rich would otherwise colour every number and path by its own lights.
output = Console(highlight=False)
errors = Console(highlight=False, stderr=True)

STYLES = {
    "written": "green",
    "generated": "cyan",
    "derived": "blue",
    "absent": "dim",
    "ok": "green",
    "missing": "yellow",
    "broken": "red",
}

FAILED = 1
REFUSED = 2


class RefusedError(Exception):
    """What was asked for makes no sense here. The message tells why and what to ask instead; the exit status is 2."""


def guarded(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """The verb, ending in a message and an exit status, not a traceback, where the user or opsmith's tools go wrong."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except RefusedError as error:
            tell(error)
            raise typer.Exit(REFUSED) from error
        except OpsmithError as error:
            tell(error)
            raise typer.Exit(FAILED) from error

    return run


def tell(error: Exception) -> None:
    # soft_wrap: a message is copied and searched for, so its lines stay the ones it was written in.
    errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)


def writable(path: Path, option: str) -> None:
    """Refuses a file that could not be written, before the work and not after it."""
    existed = path.exists()
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise RefusedError(f"{option} {path} cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink()


def write(path: Path, option: str, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"{option} {path} cannot be written: {error.strerror}") from error


def tilde(path: str | Path) -> str:
    """A path as people write it: ~ for the home directory."""
    home, text = os.path.expanduser("~"), str(path)
    return "~" + text[len(home) :] if home != "/" and (text + "/").startswith(home + "/") else text


def size(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
