"""The exceptions by which an item fails, or does not apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cases.case import Case


class Failed(Exception):
    """The fault, the arguments that show it, and the lines of a reproduction: they run after the lines that make the
    arguments, may use `op`, `reference`, torch and opsmith, and must raise if the fault is present."""

    kernel = ""
    """The kernel that was selected by `op.using`."""

    def __init__(self, message: str, case: Case | None = None, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.case = case
        self.lines = tuple(lines)


class Skipped(Exception):
    """Why an item does not apply to an op."""


class Uncovered(Skipped):
    """Why an item that applies to an op could not be checked. The report is then not ok."""


class ReferenceRaises(Skipped):
    """The reference rejects a call, or has no gradient for it: not the op's fault."""

    def __init__(self, case: Case, error: Exception) -> None:
        super().__init__(f"{case.name}: the reference raises {first_line(error)}")


def first_line(error: BaseException) -> str:
    """'ValueError: the first line of its message'."""
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0].removesuffix(": ")
