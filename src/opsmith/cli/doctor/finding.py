"""What doctor knows: a probe is a question about the machine, a finding its answer, a line the two together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "missing", "broken"]


@dataclass(frozen=True)
class Probe:
    """A question to the machine, answered by `function` ('module:function') in a process of its own."""

    name: str
    title: str
    function: str
    fix: str
    """What mends it, where the finding does not know better."""
    without: str
    """What works when it is not there."""
    seconds: float = 60.0
    """When it has not answered by then, it hangs. Generous: torch read for the first time from a slow disk takes long."""


@dataclass(frozen=True)
class Finding:
    """`found` tells what is there and what was done with it to prove it."""

    status: Status
    found: str
    fix: str | None = None


@dataclass(frozen=True)
class Line:
    """One line of doctor's report, as --json prints it. `fix` and `without` are None where all is well."""

    probe: str
    title: str
    status: Status
    found: str
    fix: str | None
    without: str | None
    seconds: float

    @classmethod
    def of(cls, probe: Probe, finding: Finding, seconds: float) -> Line:
        well = finding.status == "ok"
        return cls(
            probe=probe.name,
            title=probe.title,
            status=finding.status,
            found=finding.found,
            fix=None if well else finding.fix or probe.fix,
            without=None if well else probe.without,
            seconds=round(seconds, 2),
        )

    def facts(self) -> dict[str, object]:
        return asdict(self)
