"""Errors of bench and report: what cannot be measured, what must not be, and files that hold no rows."""

from __future__ import annotations

from .base import OpsmithError


class UnavailableError(OpsmithError):
    """A contender that cannot be had here, with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is not measured: {reason}")


class WrongResultError(OpsmithError):
    """A contender that does not compute what the reference does is not timed."""

    def __init__(self, op: str, name: str, workload: str, message: str) -> None:
        super().__init__(f"{op}, {workload}: {name} is not timed, for its results are not the reference's: {message}")


class ResultsFileError(OpsmithError, ValueError):
    """A file that is not one of `opsmith bench --json`."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path} {reason}. Give a file that `opsmith bench --json FILE` wrote.")
