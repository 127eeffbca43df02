"""Errors of bench and report: contenders that cannot or must not be measured, and files without rows."""

from __future__ import annotations

from .base import OpsmithError


class UnavailableError(OpsmithError):
    """A contender is not available here, with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is not measured: {reason}")


class WrongResultError(OpsmithError):
    """A contender does not compute what the reference does, and is not timed."""

    def __init__(self, op: str, name: str, workload: str, message: str) -> None:
        super().__init__(
            f"{op}, {workload}: {name} is not timed, because its results differ from the reference's: {message}"
        )


class ResultsFileError(OpsmithError, ValueError):
    """A file that `opsmith bench --json` did not write."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path} {reason}. Give a file that `opsmith bench --json FILE` wrote.")
