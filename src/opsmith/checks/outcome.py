"""How an item says that it failed, or that it does not apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cases.case import Case


class Failed(Exception):
    """What is wrong, the arguments it is wrong for, and the lines that show it: they come after those that make the
    arguments, may use `op`, `reference`, torch and opsmith, and must raise where the fault is there."""

    def __init__(self, message: str, case: Case | None = None, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.case = case
        self.lines = tuple(lines)


class Skipped(Exception):
    """Why an item does not apply to an op."""


class Uncovered(Skipped):
    """Why an item that applies to an op could not be looked at. The report is then not ok."""


class ReferenceRaises(Skipped):
    """The reference does not take a call, or has no gradient for it: that is not the op's fault."""

    def __init__(self, case: Case, error: Exception) -> None:
        said = str(error).strip().splitlines()
        super().__init__(f"{case.name}: the reference raises {type(error).__name__}{': ' + said[0] if said else ''}")
