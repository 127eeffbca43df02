"""The rows of one op and dtype as a table for a terminal, 80 columns wide or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..benchmark.results import Row


@dataclass(frozen=True)
class Room:
    """`bar`: characters; `intervals`: whether times have theirs."""

    bar: int
    intervals: bool


ROOMS = (Room(20, True), Room(8, False), Room(0, False))
"""The first that fits is taken."""
EIGHTHS = " ▏▎▍▌▋▊▉█"


def shown(rows: Sequence[Row], console: Console) -> Group:
    """A line a sample, under its direction; a column a contender: its time, and in times of the first one's."""
    tables = (_table(rows, room) for room in ROOMS)
    unbounded = console.options.update(max_width=1000)
    fitting = (each for each in tables if Measurement.get(console, unbounded, each).maximum <= console.width)
    return Group(_title(rows), next(fitting, None) or _table(rows, ROOMS[-1]))


def _table(rows: Sequence[Row], room: Room) -> Table:
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    limits = list(dict.fromkeys(row["limit"] for row in rows if row.get("limit")))
    table = Table(header_style="dim", box=None, padding=(0, 2 if room.bar else 1, 0, 0))
    table.add_column("sample", overflow="fold", min_width=8)
    for name in contenders:
        table.add_column(name, justify="right", no_wrap=True)
    if limits:
        named = "of the limit" if len(limits) > 1 else f"of {limits[0]} limit"
        table.add_column(named if room.bar else "limit", no_wrap=True)
    several = _several(rows, "direction")
    before = None
    for lines in _grouped(rows):
        own = next(iter(lines.values()))
        if several and own["direction"] != before:
            table.add_row(Text(own["direction"], "dim"))
            before = own["direction"]
        times = [_time(lines.get(name), own, room.intervals) for name in contenders]
        shares = [_share(own, room.bar, tell=len(limits) > 1)] if limits else []
        table.add_row(Text(own["sample"]), *times, *shares)
    return table


def _title(rows: Sequence[Row]) -> Text:
    """The op, and what all of its rows have in common."""
    first = rows[0]
    common = [str(first[key]) for key in ("dtype", "direction") if not _several(rows, key)]
    threads = first.get("threads")
    where = first["device"] if threads is None else f"{first['device']}, {threads} thread{'s' if threads != 1 else ''}"
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
    text = Text(_three(row["us"]))
    if interval and row.get("high_us"):
        half = (row["high_us"] - row["low_us"]) / (2 * row["us"])
        text.append(f" {f'±{max(half, 0.001):.1%}':>6}", "dim")
    if row is not own:
        low, high = row["speedup_low"], row["speedup_high"]
        style = "green" if low > 1 else "red" if high < 1 else "dim"
        text.append(f" {_three(row['speedup']):>5}x", style)
    return text


def _three(value: float) -> str:
    """'34,495', '128', '19.7', '2.14', '0.36'."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def _share(row: Row, length: int, tell: bool) -> Text:
    """'██████▌    83%', and which limit where they differ."""
    share = row.get("share")
    if share is None:
        return Text("")
    style = "green" if share >= 0.9 else "yellow" if share >= 0.6 else "red"
    return Text.assemble((bar(share, length), style), f"{share:>5.0%}", (f" {row['limit']}" if tell else "", "dim"))


def bar(share: float, length: int) -> str:
    """To an eighth of a character; never nothing, never more than `length`."""
    if not length:
        return ""
    eighths = max(1, min(8 * length, round(share * 8 * length)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(length)
