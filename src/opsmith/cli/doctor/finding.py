"""A probe is a question to the machine, a finding its answer, a line of doctor's report the two together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from ...errors import (
    CompilerNotFoundError,
    CudaHeadersNotFoundError,
    NvccNotFoundError,
    NvrtcNotFoundError,
    OpsmithError,
    PythonHeadersNotFoundError,
)

Status = Literal["ok", "missing", "broken"]

_MISSING = (
    CompilerNotFoundError,
    CudaHeadersNotFoundError,
    NvccNotFoundError,
    NvrtcNotFoundError,
    PythonHeadersNotFoundError,
)

_LONGEST = 300


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
    """When it has not answered by then, it hangs. Generous: a slow disk takes long to read torch for the first time."""


@dataclass(frozen=True)
class Finding:
    """`found` tells what is there, `proof` what was done with it, `fix` what mends it where that is not the probe's."""

    status: Status
    found: str
    proof: str | None = None
    fix: str | None = None

    @classmethod
    def of_error(cls, error: Exception, fix: str | None = None) -> Finding:
        """An error as a finding. Of opsmith's own, the first line tells what happened, and the rest the remedy."""
        if isinstance(error, OpsmithError):
            status: Status = "missing" if isinstance(error, _MISSING) else "broken"
            return cls(status, str(error).splitlines()[0].rstrip("."), fix=fix)
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return cls("broken", words if len(words) <= _LONGEST else f"{words[:_LONGEST]} ...", fix=fix)


@dataclass(frozen=True)
class Line:
    """One line of doctor's report, as --json prints it. `fix` and `without` are None where all is well."""

    probe: str
    title: str
    status: Status
    found: str
    proof: str | None
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
            proof=finding.proof,
            fix=None if well else finding.fix or probe.fix,
            without=None if well else probe.without,
            seconds=round(seconds, 2),
        )

    def facts(self) -> dict[str, object]:
        return asdict(self)
