"""What verbs print with: the two consoles, the colours of statuses, the form of an error, and files of results."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from ..errors import OpsmithError

if TYPE_CHECKING:
    from rich.progress import Progress

Parameters = ParamSpec("Parameters")

# highlight=False: Rich would otherwise colour every number and path.
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
    """The request makes no sense here. The message says why and what to ask instead; the exit status is 2."""


def guarded(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """The verb, ending in a message and an exit status instead of a traceback if the user or a tool is at fault."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (RefusedError, OpsmithError) as error:
            print_error(error)
            raise typer.Exit(REFUSED if isinstance(error, RefusedError) else FAILED) from error
        finally:
            output.quiet = False

    return run


def print_error(error: Exception) -> None:
    # soft_wrap: a message is copied and searched for, so it keeps its own lines.
    errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)


def print_note(text: str) -> None:
    errors.print(Text.assemble(("note: ", "yellow"), text), soft_wrap=not errors.is_terminal)


# --- Files ------------------------------------------------------------------------------------------------------------


def is_stdout(path: Path | None) -> bool:
    return str(path) == "-"


def prepare_json(path: Path | None) -> None:
    """Checks that --json can be written; with -, the report is not printed."""
    if is_stdout(path):
        output.quiet = True
    elif path is not None:
        require_writable(path, "--json")


def write_json(path: Path | None, facts: Any) -> None:
    if path is not None:
        write(path, "--json", json.dumps(facts, indent=1) + "\n")


def require_writable(path: Path, option: str) -> None:
    """Refuses a file that cannot be written, before the work and not after it."""
    if not path.absolute().parent.is_dir():
        raise RefusedError(f"{option} {path}: there is no directory {path.absolute().parent} to write it into.")
    existed = path.exists()
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise RefusedError(f"{option} {path} cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink()


def write(path: Path, option: str, text: str) -> None:
    if is_stdout(path):
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"{option} {path} cannot be written: {error.strerror}") from error


def progress_bar() -> Progress:
    """A bar with a count and the elapsed time, which disappears at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=output, transient=True)


def tilde(path: str | Path) -> str:
    """A path with ~ for the home directory."""
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
