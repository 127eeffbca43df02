"""The results of a check: one Item per entry of the checklist."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Item:
    """One line of the checklist. `message` summarises what was checked, or says why it failed or was skipped.
    `reproduction` is Python code that shows a failure; `raised` is the exception that caused it, if one did."""

    name: str
    status: Status
    message: str = ""
    reproduction: str = ""
    seconds: float = 0.0
    description: str = ""
    raised: str = ""
    uncovered: bool = False
    """Skipped although the item applies to the op: no suitable call was found."""


@dataclass(frozen=True)
class Report:
    """The checklist of one op."""

    op: str
    device: str
    level: str
    seed: int
    emulated: bool = False
    items: list[Item] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    """The names of the items that had not run when the check was interrupted."""
    not_run: str = ""
    """Why nothing was checked: this process only imports the op, for a check in another process. Then `ok` is True, so
    that the import continues."""

    @property
    def ok(self) -> bool:
        """Whether something was checked, nothing failed, and no applicable item was left out."""
        whole = self.passed and not self.failures and not self.unfinished and not self.uncovered
        return bool(self.not_run or whole)

    @property
    def uncovered(self) -> list[Item]:
        """Items that apply to the op, but found no suitable call."""
        return [item for item in self.items if item.uncovered]

    @property
    def passed(self) -> list[Item]:
        return [item for item in self.items if item.status == "passed"]

    @property
    def failures(self) -> list[Item]:
        return [item for item in self.items if item.status == "failed"]

    @property
    def skipped(self) -> list[Item]:
        return [item for item in self.items if item.status == "skipped"]

    @property
    def seconds(self) -> float:
        return sum(item.seconds for item in self.items)

    @property
    def where(self) -> str:
        """'cpu', 'cuda', or 'cuda, emulated'."""
        return "cuda, emulated" if self.emulated else self.device

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.not_run:
            return f"{self.op}: {self.not_run}"
        parts = [f"{len(self.passed)} passed", f"{len(self.failures)} failed", f"{len(self.skipped)} skipped"]
        parts += [f"{len(self.unfinished)} not run"] if self.unfinished else []
        lines = [f"{self.op} ({self.where}, {self.level}): {', '.join(parts)} in {self.seconds:.1f} s"]
        lines += [f"  {item.name}: {item.message}" for item in self.failures]
        lines += [f"  {item.name} could not be checked: {item.message}" for item in self.uncovered]
        lines += ["  nothing was checked"] if not self.passed and not self.failures else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def to_json(reports: Iterable[Report]) -> str:
    """The reports as JSON text."""
    return json.dumps({"reports": [report.as_dict() for report in reports]}, indent=1) + "\n"
