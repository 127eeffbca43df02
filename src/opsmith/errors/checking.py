"""Errors of check, bench and report: what cannot be checked, contenders that must not be timed, files without rows."""

from __future__ import annotations

from collections.abc import Sequence

from .base import LocatedError, OpsmithError, listed


class CheckOptionError(OpsmithError, ValueError):
    """A check was given a device, a level or an item that does not exist."""


class NotAnOpError(LocatedError, TypeError):
    """What was given to a check is neither an op nor an adopted operator."""

    def __init__(self, given: object, returned_by: object | None = None) -> None:
        source = "" if returned_by is None else f", which {returned_by!r} returned"
        super().__init__(
            f"A check takes an op, not {given!r}{source}. An operator of torch.ops is checked against a reference: "
            "opsmith.checks.adopt(torch.ops.mylib.mish, reference)."
        )


class NotAnOperatorError(LocatedError, TypeError):
    """`adopt` was given something other than an operator of torch.ops."""

    def __init__(self, given: object) -> None:
        super().__init__(f"adopt takes an operator, torch.ops.NAMESPACE.NAME, not {given!r}.")


class SeveralOverloadsError(LocatedError, ValueError):
    """`adopt` was given an operator with overloads, none of which is the default."""

    def __init__(self, operator: str, overloads: Sequence[str]) -> None:
        super().__init__(
            f"torch.ops.{operator} has several overloads: {listed(overloads)}. A check takes one. "
            f"Give torch.ops.{operator}.{overloads[0]}, or another."
        )


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
