"""Rows and environments as tables. A cell has the value to sort by; page.html lays them out and page.js sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..results import COLUMNS, Row
from .machines import Machine
from .numbers import memory, number, percent, si, three, times

DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Column:
    """`keys`: columns of a row; the first one is sorted by. `shown` and `small`: a cell's text, and a smaller one after
    it, from a row that has it."""

    title: str
    keys: tuple[str, ...]
    shown: Callable[[Row], str]
    small: Callable[[Row], str | None] = lambda row: None
    is_number: bool = True
    on_paper: bool = True

    @property
    def style(self) -> str | None:
        classes = ("number" if self.is_number else "", "words" if self.title == "notes" else "")
        return " ".join(filter(None, (*classes, "" if self.on_paper else "screen-only"))) or None

    def has(self, row: Row) -> bool:
        value = row.get(self.keys[0])
        return number(value) is not None if self.is_number else bool(value)

    def sort(self, row: Row) -> Any:
        return row[self.keys[0]] if self.is_number else self.shown(row)

    @property
    def explained(self) -> str:
        return "; ".join(f"{key}: {COLUMNS[key]}" for key in self.keys if key in COLUMNS)


def _text(title: str) -> Column:
    return Column(title, (title,), lambda row: str(row[title]), is_number=False)


def _interval(title: str, name: str, low: str, high: str, shown: Callable[[float], str]) -> Column:
    def ends(row: Row) -> str | None:
        known = [three(end) for each in (low, high) if (end := number(row.get(each))) is not None]
        return DASH.join(known) if len(known) == 2 else None

    return Column(title, (name, low, high), lambda row: shown(row[name]), ends)


ROWS = (
    _text("op"),
    _text("sample"),
    _text("dtype"),
    _text("direction"),
    _text("contender"),
    Column("elements", ("elements",), lambda row: f"{row['elements']:,}", on_paper=False),
    _interval("µs", "us", "low_us", "high_us", three),
    _interval("\N{MULTIPLICATION SIGN} opsmith", "speedup", "speedup_low", "speedup_high", times),
    Column("of limit", ("share", "limit"), lambda row: percent(row["share"]), lambda row: row.get("limit")),
    Column("host µs", ("host_us",), lambda row: three(row["host_us"]), on_paper=False),
    Column("peak", ("peak_bytes",), lambda row: memory(row["peak_bytes"])),
    Column("held", ("held_bytes",), lambda row: memory(row["held_bytes"]), on_paper=False),
    Column("first call, s", ("cold_s",), lambda row: three(row["cold_s"]), on_paper=False),
    Column("notes", ("notes",), lambda row: "; ".join(map(str, row["notes"])), is_number=False, on_paper=False),
)
SLOWER = tuple(column for column in ROWS if column.title not in ("host µs", "peak", "held", "first call, s"))


def present(columns: Iterable[Column], rows: Sequence[Row]) -> list[Column]:
    """The columns that a row has."""
    return [column for column in columns if any(column.has(row) for row in rows)]


def slower_rows(machine: Machine) -> list[Row]:
    """Rows of contenders that are faster than the op, beyond noise; the worst first."""
    found = [row for row in machine.rows if (high := number(row.get("speedup_high"))) is not None and high < 1]
    return sorted(found, key=lambda row: number(row.get("speedup")) or 0.0)


def flat(environment: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """{'torch': '2.13.0', 'ceilings copy': '4.18 TB/s'}, without unknown values."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        title = f"{prefix}{name}"
        if isinstance(value, dict):
            found |= flat(value, f"{title} ")
        elif value is not None:
            rate = number(value) if prefix.startswith("ceilings") else None
            unit = "FLOP/s" if "matmul" in prefix else "B/s"
            found[title] = str(value) if rate is None else si(rate, unit)
    return found


def meanings(rows: Sequence[Row]) -> dict[str, str]:
    """The columns that the rows have, and what they mean."""
    return {name: text for name, text in COLUMNS.items() if any(row.get(name) not in (None, []) for row in rows)}
