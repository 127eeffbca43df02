"""The rows of one op and dtype as a table, for terminals of 80 columns and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..errors.base import plural

if TYPE_CHECKING:
    from ..benchmark.results import Row


@dataclass(frozen=True)
class Format:
    """`bar`: its length; `intervals`: whether times are shown with their intervals."""

    bar: int
    intervals: bool


FORMATS = (Format(20, True), Format(8, False), Format(0, False))  # the first one that fits is used
EIGHTHS = " ▏▎▍▌▋▊▉█"


def shown(rows: Sequence[Row], console: Console) -> Group:
    """A line for each sample, by direction; a column for each contender: its time, and its ratio to the op's time."""
    tables = (_table(rows, form) for form in FORMATS)
    unbounded = console.options.update(max_width=1000)
    fitting = (each for each in tables if Measurement.get(console, unbounded, each).maximum <= console.width)
    return Group(_title(rows), next(fitting, None) or _table(rows, FORMATS[-1]))


def _table(rows: Sequence[Row], form: Format) -> Table:
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    limits = list(dict.fromkeys(row["limit"] for row in rows if row.get("limit")))
    table = Table(header_style="dim", box=None, padding=(0, 2 if form.bar else 1, 0, 0))
    table.add_column("sample", overflow="fold", min_width=8)
    for name in contenders:
        table.add_column(name, justify="right", no_wrap=True)
    if limits:
        heading = "of the limit" if len(limits) > 1 else f"of {limits[0]} limit"
        table.add_column(heading if form.bar else "limit", no_wrap=True)
    several = _several(rows, "direction")
    before = None
    for lines in _grouped(rows):
        own = next(iter(lines.values()))
        if several and own["direction"] != before:
            table.add_row(Text(own["direction"], "dim"))
            before = own["direction"]
        times = [_time(lines.get(name), own, form.intervals) for name in contenders]
        shares = [_share(own, form.bar, name_limit=len(limits) > 1)] if limits else []
        table.add_row(Text(own["sample"]), *times, *shares)
    return table


def _title(rows: Sequence[Row]) -> Text:
    """The op, and what all of the rows have in common."""
    first = rows[0]
    common = [str(first[key]) for key in ("dtype", "direction") if not _several(rows, key)]
    threads = first.get("threads")
    where = first["device"] if threads is None else f"{first['device']}, {plural(threads, 'thread')}"
    return Text.assemble((first["op"], "bold"), (f"  {', '.join([*common, where])}; microseconds", "dim"))


def _several(rows: Sequence[Row], key: str) -> bool:
    return len({row[key] for row in rows}) > 1


def _grouped(rows: Sequence[Row]) -> list[dict[str, Row]]:
    """{contender: row} for each measurement, directions together."""
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        groups.setdefault((row["direction"], row["dtype"], row["sample"]), {})[row["contender"]] = row
    order = list(dict.fromkeys(direction for direction, _, _ in groups))
    return [groups[key] for key in sorted(groups, key=lambda key: order.index(key[0]))]


def _time(row: Row | None, own: Row, interval: bool) -> Text:
    if row is None:
        return Text("")
    from ..benchmark.report.numbers import three

    text = Text(three(row["us"]))
    if interval and row.get("high_us"):
        half = (row["high_us"] - row["low_us"]) / (2 * row["us"])
        text.append(f" {f'±{max(half, 0.001):.1%}':>6}", "dim")
    if row is not own:
        low, high = row["speedup_low"], row["speedup_high"]
        style = "green" if low > 1 else "red" if high < 1 else "dim"
        text.append(f" {three(row['speedup']):>5}x", style)
    return text


def _share(row: Row, length: int, name_limit: bool) -> Text:
    """'██████▌    83%', and the limit's name if rows differ in it."""
    share = row.get("share")
    if share is None:
        return Text("")
    style = "green" if share >= 0.9 else "yellow" if share >= 0.6 else "red"
    return Text.assemble(
        (bar(share, length), style), f"{share:>5.0%}", (f" {row['limit']}" if name_limit else "", "dim")
    )


def bar(share: float, length: int) -> str:
    """A bar in steps of an eighth of a character, never empty and never longer than `length`."""
    if not length:
        return ""
    eighths = max(1, min(8 * length, round(share * 8 * length)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(length)
