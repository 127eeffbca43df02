"""Results: rows that are plain dictionaries, the environment they were measured in, and one file held against another.

A row has, where it was measured,

    op, sample, dtype, elements, direction, contender, device, threads    what ran, where; threads on a CPU
    us, low_us, high_us, rounds       time of a call (on a GPU: of its kernels), and the 95 % interval of the median
    bytes, flops                      the least that must be done, from the op's declared Cost
    share, limit                      of the machine's ceiling ("memory": of a copying kernel) that the call reaches
    speedup, speedup_low, speedup_high   the contender's time over the op's own, round by round
    host_us                           of a call on the host, arguments small enough that the GPU is never waited for
    peak_bytes, held_bytes            memory beyond the inputs while the call ran; of its results and gradients alone
    cold_s                            of the first call in a new process with empty caches
    verified, notes                   whether its results were the reference's; what a reader must know
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
Row = dict[str, Any]
KEY = ("op", "sample", "dtype", "elements", "direction", "contender", "device", "threads")
NOISE = 0.03
"""What two runs on one machine differ by, beside their own spread: clocks and places in memory."""


@dataclass
class Results:
    """What `opsmith.bench` returns."""

    rows: list[Row] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def save(self, path: str | Path) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json())

    def to_json(self) -> str:
        text = {"schema": SCHEMA, "environment": self.environment, "warnings": self.warnings, "rows": self.rows}
        return json.dumps(text, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Results:
        held = json.loads(Path(path).read_text())
        if held.get("schema") != SCHEMA:
            raise ValueError(f"{path} is not a file of opsmith bench, schema {SCHEMA}")
        return cls(held["rows"], held["environment"], held.get("warnings", []))

    def __str__(self) -> str:
        return f"{len(self.rows)} rows on {self.environment.get('device', '?')}"


@dataclass(frozen=True)
class Change:
    """A row that is slower than before by more than noise explains."""

    row: Row
    before_us: float
    now_us: float
    allowed: float

    @property
    def ratio(self) -> float:
        return self.now_us / self.before_us

    def __str__(self) -> str:
        what = " ".join(str(self.row[key]) for key in ("op", "sample", "dtype", "direction", "contender"))
        times = f"{self.before_us:.4g} us before, {self.now_us:.4g} now"
        return f"{what}: {times} ({self.ratio:.2f}x, where {self.allowed:.2f}x is noise)"


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


def regressions(before: Results, now: Results, contenders: Sequence[str] | None = None) -> list[Change]:
    """Rows of both files that have become slower beyond the measured noise: their two intervals, and NOISE."""
    former = {key_of(row): row for row in before.rows if row.get("us")}
    found = []
    for row in now.rows:
        old = former.get(key_of(row))
        if old is None or not row.get("us") or (contenders and row["contender"] not in contenders):
            continue
        allowed = 1 + NOISE + _half_width(old) + _half_width(row)
        if row["us"] > old["us"] * allowed:
            found.append(Change(row, old["us"], row["us"], allowed))
    return found


def _half_width(row: Row) -> float:
    return (row["high_us"] - row["low_us"]) / (2 * row["us"]) if row.get("high_us") else 0.0


def common_rows(before: Results, now: Results) -> int:
    """How many rows the two files share: a comparison of none proves nothing."""
    return len({key_of(row) for row in before.rows} & {key_of(row) for row in now.rows})


def selected(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
