"""Charts of calls against what the machine gives: the roofline, and bytes a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..results import Row
from .figures import Figure, Spec, line, mark, short_names
from .machines import Machine
from .numbers import number, percent, positive, si


def roofline(machine: Machine) -> Figure | None:
    """Operations a second over operations a byte, below the lines that the machine's ceilings draw."""
    rows = [row for row in _timed(machine) if positive(row.get("flops")) and positive(row.get("bytes"))]
    if not rows:
        return None
    label = _labels(machine)
    series = _points(machine, rows, lambda row: row["flops"] / row["bytes"], lambda row: row["flops"] / row["us"] * 1e6)
    for each in series:
        for point in each["points"]:
            row = point.pop("row")
            point["text"] = f"{label(row)}: {si(point['y'], 'FLOP/s')}{_of_limit(row)}"
    lowest = min(point["x"] for each in series for point in each["points"])
    highest = max(point["x"] for each in series for point in each["points"])
    return Figure(
        "Roofline",
        "Each mark is a call. To the right, more arithmetic for each byte; upwards, faster. A mark on the sloping line "
        "moves its data as fast as a copying kernel; one on a flat line computes as fast as a product of matrices.",
        {
            "kind": "points",
            "x": {"title": "floating-point operations a byte", "unit": "", "log": True},
            "y": {"title": "operations a second", "unit": "FLOP/s", "log": True},
            "series": series,
            "lines": _roofs(machine, rows, lowest / 4, highest * 4),
        },
    )


def _roofs(machine: Machine, rows: Sequence[Row], first: float, last: float) -> list[Spec]:
    copy = machine.ceilings.get("copy")
    if copy is None:
        return []
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    rates = {dtype: machine.ceilings[f"matmul {dtype}"] for dtype in dtypes if f"matmul {dtype}" in machine.ceilings}
    top = max(rates.values(), default=None)
    turn = last if top is None else max(first * 2, top / copy)
    last = max(last, turn * (4 if rates else 1))
    lines = [line(f"copy {si(copy, 'B/s')}", (first, first * copy), (turn, turn * copy))]
    for names, rate in _distinct_rates(rates):
        lines.append(line(f"matmul {', '.join(names)} {si(rate, 'FLOP/s')}", (rate / copy, rate), (last, rate)))
    return lines


def _distinct_rates(rates: dict[str, float]) -> list[tuple[list[str], float]]:
    """Rates that would be one line on a chart, as one: the higher of them."""
    found: list[tuple[list[str], float]] = []
    for dtype, rate in sorted(rates.items(), key=lambda each: -each[1]):
        if found and found[-1][1] < 1.25 * rate:
            found[-1][0].append(dtype)
        else:
            found.append(([dtype], rate))
    return found


def bandwidth(machine: Machine) -> Figure | None:
    """Bytes a second over bytes: also for ops whose cost has no operations."""
    rows = [row for row in _timed(machine) if positive(row.get("bytes"))]
    if not rows:
        return None
    label = _labels(machine)
    series = _points(machine, rows, lambda row: float(row["bytes"]), lambda row: row["bytes"] / row["us"] * 1e6)
    for each in series:
        for point in each["points"]:
            row = point.pop("row")
            point["text"] = f"{label(row)}: {si(point['y'], 'B/s')}{_of_limit(row)}"
    xs = [point["x"] for each in series for point in each["points"]]
    ceilings = {name: machine.ceilings[name] for name in ("copy", "read", "write") if name in machine.ceilings}
    others = " and ".join(f"{name} {si(ceilings[name], 'B/s')}" for name in ("read", "write") if name in ceilings)
    return Figure(
        "Memory",
        "The least that a call must move, over the time it takes. The line is what this machine gave, in the same run, "
        f"to a kernel that only copies{f'; dashed, {others}' if others else ''}. Small calls are far below: to start "
        "takes most of their time.",
        {
            "kind": "points",
            "x": {"title": "bytes a call must move", "unit": "bytes", "log": True},
            "y": {"title": "bytes a second", "unit": "B/s", "log": False},
            "series": series,
            "lines": [
                line(
                    f"copy {si(rate, 'B/s')}" if name == "copy" else "", (min(xs) / 2, rate), (max(xs) * 2, rate), True
                )
                for name, rate in ceilings.items()
            ],
        },
    )


def _timed(machine: Machine) -> list[Row]:
    return [row for row in machine.rows if positive(row["us"])]


def _points(machine: Machine, rows: Sequence[Row], x: Callable[[Row], float], y: Callable[[Row], float]) -> list[Spec]:
    """A series a contender; a backward's marks are hollow."""
    series = []
    for name in machine.contenders:
        points = [
            {"x": x(row), "y": y(row), "hollow": row["direction"] != "forward", "row": row}
            for row in rows
            if row["contender"] == name
        ]
        if points:
            series.append({"name": name, "mark": mark(name, machine.contenders), "points": points})
    return series


def _labels(machine: Machine) -> Callable[[Row], str]:
    short = short_names(machine.rows)
    return lambda row: f"{row['contender']}, {short(row['op'])} {row['sample']} {row['dtype']} {row['direction']}"


def _of_limit(row: Row) -> str:
    share = number(row.get("share"))
    return "" if share is None else f", {percent(share)} of the {row.get('limit', 'limit')} limit"
