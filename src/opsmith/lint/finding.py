"""A finding: one rule broken at one place of a source."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """`line` and `column` count from 1, the column in characters. `remedy` is one line."""

    path: str
    line: int
    column: int
    rule: str
    message: str
    remedy: str

    @property
    def place(self) -> str:
        """'add.cu:12:3', which terminals and editors lead to."""
        return f"{self.path}:{self.line}:{self.column}"

    def facts(self) -> dict[str, str | int]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.message} {self.remedy}"
