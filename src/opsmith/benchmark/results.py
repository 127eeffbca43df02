"""Results: rows as plain dictionaries, the environment that they were measured in, and the comparison of two files."""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import __version__
from ..errors import ResultsFileError

if TYPE_CHECKING:
    from .ceilings import Ceilings

SCHEMA = 1
Row = dict[str, Any]
COLUMNS = {
    "op": "the op's name",
    "sample": "what it ran on: a name, or the shape of the first tensor",
    "dtype": "dtype of the first floating-point tensor",
    "elements": "number of elements of the largest tensor",
    "direction": "forward, backward, or both, one after the other",
    "contender": "opsmith, eager, compile, compile-max, liger, or a kernel's name",
    "device": "the GPU's name, or cpu",
    "threads": "number of threads on a CPU; null on a GPU",
    "us": "median time of a call in microseconds; on a GPU, of its kernels",
    "low_us": "lower end of its 95 % interval",
    "high_us": "upper end",
    "rounds": "number of samples",
    "bytes": "least number of bytes to move, by the op's cost",
    "flops": "least number of floating-point operations, by the op's cost; 0 if it gives none",
    "share": "share of the ceiling that the call reaches: the least time by the op's cost divided by us",
    "limit": "the ceiling: memory (bandwidth of a copy kernel) or compute (rate of matrix products)",
    "speedup": "the contender's time divided by the op's: the median of the rounds' ratios; above 1, the op is faster",
    "speedup_low": "lower end of its 95 % interval",
    "speedup_high": "upper end",
    "host_us": "time of a call on the host in microseconds, for arguments so small that it never waits for the GPU",
    "peak_bytes": "peak memory of the call beyond its inputs, on a GPU",
    "held_bytes": "size of its results and gradients",
    "cold_s": "seconds of the first forward and backward, in a new process with empty caches (--cold)",
    "verified": "whether its results were compared with the reference's",
    "notes": "warnings about the row",
}
"""The columns of a row. Some are there only if they were measured."""
KEY = ("op", "sample", "dtype", "elements", "direction", "contender", "device", "threads")
CELL = tuple(name for name in KEY if name != "contender")
NOISE = 0.03  # how much two runs on one machine differ beyond their own spread: clocks and memory locations


def environment(device: str, threads: int, ceilings: Ceilings) -> dict[str, Any]:
    """What rows are measured on: the device, the versions, the date and the ceilings."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "kind": device,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "threads": threads if device == "cpu" else None,
        "ceilings": asdict(ceilings),
        "opsmith": __version__,
    }


def processor() -> str:
    """'AMD EPYC 9654 96-Core Processor'; 'x86_64' if the system does not report it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass
class Results:
    """What `opsmith.bench` returns."""

    rows: list[Row] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def save(self, path: str | Path) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json(), encoding="utf-8")

    def as_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "environment": self.environment, "warnings": self.warnings, "rows": self.rows}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1) + "\n"

    def keep_fastest(self, rows: Sequence[Row]) -> None:
        """For cells that were measured twice, keeps the rows of the faster run. Speedups compare rows of one run."""
        repeated, disturbed = _by_cell(rows), _by_cell(self.rows)
        for place, row in enumerate(self.rows):
            cell, name = key_of(row, CELL), row["contender"]
            before, now = disturbed[cell], repeated.get(cell, {})
            if before.keys() <= now.keys() and sum(now[each]["us"] - before[each]["us"] for each in before) < 0:
                self.rows[place] = {**row, **now[name]}

    @classmethod
    def load(cls, path: str | Path) -> Results:
        try:
            held = json.loads(Path(path).read_text(encoding="utf-8"))
            json.dumps(held, ensure_ascii=False).encode()  # a lone surrogate is not valid text
        except OSError as error:
            raise ResultsFileError(path, f"cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ResultsFileError(path, "is not JSON") from error
        if not isinstance(held, dict) or held.get("schema") != SCHEMA:
            raise ResultsFileError(path, f"has no rows of schema {SCHEMA}")
        if not _is_whole(held):
            raise ResultsFileError(path, f"claims schema {SCHEMA}, but its rows are damaged")
        return cls(held["rows"], held["environment"], held.get("warnings", []))

    def __str__(self) -> str:
        return f"{len(self.rows)} rows on {self.environment.get('device', '?')}"


IDENTITY = ("op", "sample", "dtype", "direction", "contender")


def _is_whole(held: dict[str, Any]) -> bool:
    """Whether every row has the columns that readers rely on."""
    rows, warnings = held.get("rows"), held.get("warnings", [])
    if not isinstance(rows, list) or not isinstance(held.get("environment"), dict) or not _are_texts(warnings):
        return False
    return all(
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in IDENTITY)
        and all(isinstance(row.get(name), (str, int, type(None))) for name in KEY)
        and _is_time(row.get("us"))
        and all(name not in row or _is_time(row[name]) for name in ("low_us", "high_us"))
        and ("low_us" in row) == ("high_us" in row)
        and _are_texts(row.get("notes", []))
        for row in rows
    )


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _is_time(value: Any) -> bool:
    """Whether it is a plausible number of microseconds: a year is 3e13."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e14


@dataclass(frozen=True)
class Change:
    """A row that is slower than before by more than noise."""

    row: Row
    before_us: float
    now_us: float
    allowed: float

    @property
    def ratio(self) -> float:
        return self.now_us / self.before_us

    def __str__(self) -> str:
        what = " ".join(str(self.row[key]) for key in IDENTITY)
        times = f"{self.before_us:.4g} us before, {self.now_us:.4g} now"
        return f"{what}: {times} ({self.ratio:.2f}x, where {self.allowed:.2f}x is noise)"


def key_of(row: Row, names: Sequence[str] = KEY) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


def _by_cell(rows: Iterable[Row]) -> dict[tuple[Any, ...], dict[str, Row]]:
    """{cell: {contender: row}}."""
    cells: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(key_of(row, CELL), {})[row["contender"]] = row
    return cells


def regressions(before: Results, now: Results, contenders: Collection[str] | None = None) -> list[Change]:
    """Rows in both files that are slower now: their intervals are apart by more than NOISE."""
    former = {key_of(row): row for row in before.rows if row.get("us")}
    found = []
    for row in now.rows:
        old = former.get(key_of(row))
        if old is None or not row.get("us") or (contenders and row["contender"] not in contenders):
            continue
        latest, earliest = _end(old, "high_us"), _end(row, "low_us")
        if earliest > latest * (1 + NOISE):
            allowed = (1 + NOISE) * latest / old["us"] * row["us"] / earliest
            found.append(Change(row, old["us"], row["us"], allowed))
    return found


def _end(row: Row, name: str) -> float:
    return float(row[name] if name in row else row["us"])


def missing(before: Results, now: Results, contenders: Collection[str]) -> list[Row]:
    """Rows of these contenders that are missing now, in cells that were measured again."""
    cells = {key_of(row, CELL) for row in now.rows}
    there = {key_of(row) for row in now.rows}
    return [
        row
        for row in before.rows
        if row["contender"] in contenders and key_of(row, CELL) in cells and key_of(row) not in there
    ]


def common_rows(before: Results, now: Results, contenders: Collection[str] | None = None) -> int:
    """The number of rows in both files."""
    measured = [row for row in now.rows if not contenders or row["contender"] in contenders]
    return len({key_of(row) for row in before.rows} & {key_of(row) for row in measured})
