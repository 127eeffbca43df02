"""Rows and environments as tables. A cell has the value to sort by; page.js sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..results import COLUMNS, Row
from .machines import Machine
from .markup import Html, join, tag
from .numbers import memory, number, percent, si, three, times

DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Column:
    """`keys`: columns of a row; the first one is sorted by. `shown`: a cell's text from a row that has it."""

    title: str
    keys: tuple[str, ...]
    shown: Callable[[Row], str]  # Html, or text that is escaped
    is_number: bool = True
    on_paper: bool = True

    @property
    def style(self) -> str | None:
        classes = ("number" if self.is_number else "", "words" if self.title == "notes" else "")
        return " ".join(filter(None, (*classes, "" if self.on_paper else "screen-only"))) or None

    def has(self, row: Row) -> bool:
        value = row.get(self.keys[0])
        return number(value) is not None if self.is_number else bool(value)

    @property
    def explained(self) -> str:
        return "; ".join(f"{key}: {COLUMNS[key]}" for key in self.keys if key in COLUMNS)


def _text(title: str) -> Column:
    return Column(title, (title,), lambda row: str(row[title]), is_number=False)


def _interval(row: Row, name: str, low: str, high: str, shown: Callable[[float], str]) -> Html:
    ends = [three(end) for each in (low, high) if (end := number(row.get(each))) is not None]
    return join(shown(row[name]), _small(DASH.join(ends)) if len(ends) == 2 else None)


def _small(text: object) -> Html | None:
    return tag("small", str(text)) if text else None


ROWS = (
    _text("op"),
    _text("sample"),
    _text("dtype"),
    _text("direction"),
    _text("contender"),
    Column("elements", ("elements",), lambda row: f"{row['elements']:,}", on_paper=False),
    Column("µs", ("us", "low_us", "high_us"), lambda row: _interval(row, "us", "low_us", "high_us", three)),
    Column(
        "\N{MULTIPLICATION SIGN} opsmith",
        ("speedup", "speedup_low", "speedup_high"),
        lambda row: _interval(row, "speedup", "speedup_low", "speedup_high", times),
    ),
    Column("of limit", ("share", "limit"), lambda row: join(percent(row["share"]), _small(row.get("limit")))),
    Column("host µs", ("host_us",), lambda row: three(row["host_us"]), on_paper=False),
    Column("peak", ("peak_bytes",), lambda row: memory(row["peak_bytes"])),
    Column("held", ("held_bytes",), lambda row: memory(row["held_bytes"]), on_paper=False),
    Column("first call, s", ("cold_s",), lambda row: three(row["cold_s"]), on_paper=False),
    Column("notes", ("notes",), lambda row: "; ".join(map(str, row["notes"])), False, False),
)
SLOWER = tuple(column for column in ROWS if column.title not in ("host µs", "peak", "held", "first call, s"))


def slower_rows(machine: Machine) -> list[Row]:
    """Rows of contenders that are faster than the op, beyond noise; the worst first."""
    found = [row for row in machine.rows if (high := number(row.get("speedup_high"))) is not None and high < 1]
    return sorted(found, key=lambda row: number(row.get("speedup")) or 0.0)


def sortable(rows: Sequence[Row], columns: Sequence[Column]) -> Html:
    """Columns that no row has are left out."""
    used = [column for column in columns if any(column.has(row) for row in rows)]
    body = (tag("tr", (_cell(column, row) for column in used)) for row in rows)
    return _scrolling(tag("table", tag("thead", tag("tr", map(_head, used))), tag("tbody", body), class_="sortable"))


def _scrolling(table: Html) -> Html:
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="table, scrolls sideways")


def _head(column: Column) -> Html:
    button = tag("button", column.title, type="button", title=column.explained)
    return tag("th", button, scope="col", class_=column.style, aria_sort="none", data_title=column.title)


def _cell(column: Column, row: Row) -> Html:
    if not column.has(row):
        return tag("td", class_=column.style)
    shown = column.shown(row)
    return tag("td", shown, class_=column.style, data_sort=row[column.keys[0]] if column.is_number else shown)


def environment_table(machines: Sequence[Machine]) -> Html:
    """A line for each fact, a column for each file."""
    files = [(name, flat(results.environment)) for machine in machines for name, results in machine.files]
    facts = list(dict.fromkeys(fact for _, facts in files for fact in facts))
    heads = [tag("th", "", scope="col"), *(tag("th", name, scope="col") for name, _ in files)]
    lines = [
        tag("tr", tag("th", fact, scope="row"), (tag("td", held.get(fact, "")) for _, held in files)) for fact in facts
    ]
    return _scrolling(tag("table", tag("thead", tag("tr", heads)), tag("tbody", lines), class_="facts"))


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


def columns_list(rows: Sequence[Row]) -> Html:
    """The meaning of the columns that the rows have."""
    present = [name for name in COLUMNS if any(row.get(name) not in (None, []) for row in rows)]
    return tag("dl", (join(tag("dt", name), tag("dd", COLUMNS[name])) for name in present))
