"""Probe, its Finding, and the Line of doctor's report that joins the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...errors import (
    CompilerTooOldError,
    CudaVersionMismatchError,
    OpsmithError,
    ToolMissingError,
    UnsupportedArchError,
)

Status = Literal["ok", "missing", "broken"]

_UNSUITABLE = (CompilerTooOldError, CudaVersionMismatchError, UnsupportedArchError)  # the tool is there
_LONGEST = 300


@dataclass(frozen=True)
class Probe:
    """A test of one tool: `function` ('module:function') runs in a separate process."""

    name: str
    title: str
    function: str
    fix: str  # the fix, if the finding has none
    without: str  # what works while it does not
    seconds: float = 60.0  # the time limit. Generous: reading torch from a slow disk for the first time takes long.


@dataclass(frozen=True)
class Finding:
    """`found`: what is there; `proof`: what was done with it; `fix`: in place of the probe's."""

    status: Status
    found: str
    proof: str | None = None
    fix: str | None = None

    @classmethod
    def of_error(cls, error: Exception, fix: str | None = None) -> Finding:
        """An error as a finding. The first line of an OpsmithError says what happened, the rest how to fix it."""
        if isinstance(error, OpsmithError):
            missing = isinstance(error, ToolMissingError) and not isinstance(error, _UNSUITABLE)
            status: Status = "missing" if missing else "broken"
            return cls(status, str(error).splitlines()[0].rstrip("."), fix=fix)
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return cls("broken", message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ...", fix=fix)


@dataclass(frozen=True)
class Line:
    """One line of doctor's report, as --json writes it. `fix` and `without` are None if the status is ok."""

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
        fix, without = (None, None) if finding.status == "ok" else (finding.fix or probe.fix, probe.without)
        seconds = round(seconds, 2)
        return cls(probe.name, probe.title, finding.status, finding.found, finding.proof, fix, without, seconds)
