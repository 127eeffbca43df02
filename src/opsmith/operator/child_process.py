"""Keeps a check, benchmark or demo from starting another one.

Child processes of opsmith import the module that declares an op, and so do `opsmith check FILE` and `opsmith bench
FILE`. A script without `if __name__ == "__main__"` calls opsmith.check while it is imported; started again there, each
check would start the next, without end. So inside such a process check and bench return at once, with nothing measured.

A child that was started by the script's second check stops importing at its second check: the op is then in the state
that the parent checks, and whatever the script does after that (train a model for an hour) is not done again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .._lazy import import_by_name

VARIABLE = "OPSMITH_CHILD"
"""Set in processes that only import the user's module. Its value: the number of the call to stop at, or 0."""
NEVER = 0
REASON = "not run: this process only imports the op, for a check or benchmark that is already running"

_calls = 0


class StopImport(BaseException):
    """The import has come as far as the parent process had when it started this one."""


def environment() -> dict[str, str]:
    """The environment for a child process that imports the user's module."""
    return {**os.environ, VARIABLE: os.environ.get(VARIABLE, str(_calls))}


def active() -> bool:
    return VARIABLE in os.environ


def returns_at_once() -> bool:
    """For check and bench to call first: whether this call must do nothing. Raises StopImport at the parent's call."""
    global _calls
    _calls += 1
    if not active():
        return False
    if _calls == int(os.environ[VARIABLE]):
        raise StopImport
    return True


@contextmanager
def until_parent_call() -> Iterator[None]:
    """Around the import of the user's module in a child process: stops where the parent was when it started it."""
    global _calls
    _calls = 0
    with suppress(StopImport):
        yield


@contextmanager
def importing() -> Iterator[None]:
    """Around the import of the user's module in a command: the whole module is imported, and checks nothing."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(NEVER)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def import_as_child(name: str) -> None:
    with until_parent_call():
        import_by_name(name)
