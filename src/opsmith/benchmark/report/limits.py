"""Charts of calls against the machine's limits: the roofline, and bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..results import Row
from .figures import Figure, Spec, line, series, short_names
from .machines import Machine
from .numbers import number, percent, positive, si


def roofline(machine: Machine) -> Figure | None:
    """Operations per second over operations per byte, with lines for the machine's ceilings."""
    rows = [row for row in _timed(machine) if positive(row.get("flops")) and positive(row.get("bytes"))]
    if not rows:
        return None
    points = _points(
        machine, rows, lambda row: row["flops"] / row["bytes"], lambda row: row["flops"] / row["us"] * 1e6, "FLOP/s"
    )
    xs = [point["x"] for each in points for point in each["points"]]
    return Figure(
        "Roofline",
        "Each mark is a call. To the right, more arithmetic per byte; upwards, faster. A mark on the sloping line "
        "moves its data as fast as a copy kernel; one on a flat line computes as fast as a matrix product.",
        {
            "kind": "points",
            "x": {"title": "floating-point operations per byte", "unit": "", "log": True},
            "y": {"title": "operations per second", "unit": "FLOP/s", "log": True},
            "series": points,
            "lines": _roofs(machine, rows, min(xs) / 4, max(xs) * 4),
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
    """Rates that are close together as one line, at the highest of them."""
    found: list[tuple[list[str], float]] = []
    for dtype, rate in sorted(rates.items(), key=lambda each: -each[1]):
        if found and found[-1][1] < 1.25 * rate:
            found[-1][0].append(dtype)
        else:
            found.append(([dtype], rate))
    return found


def bandwidth(machine: Machine) -> Figure | None:
    """Bytes per second over bytes: also for ops whose cost has no operations."""
    rows = [row for row in _timed(machine) if positive(row.get("bytes"))]
    if not rows:
        return None
    points = _points(machine, rows, lambda row: float(row["bytes"]), lambda row: row["bytes"] / row["us"] * 1e6, "B/s")
    xs = [point["x"] for each in points for point in each["points"]]
    first, last = min(xs) / 2, max(xs) * 2
    ceilings = {name: machine.ceilings[name] for name in ("copy", "read", "write") if name in machine.ceilings}
    others = " and ".join(f"{name} {si(ceilings[name], 'B/s')}" for name in ("read", "write") if name in ceilings)
    return Figure(
        "Memory",
        "The least that a call must move, divided by its time. The line is the bandwidth of a copy kernel on this "
        f"machine, in the same run{f'; dashed: {others}' if others else ''}. Small calls are far below it: their start "
        "takes most of their time.",
        {
            "kind": "points",
            "x": {"title": "bytes that a call must move", "unit": "bytes", "log": True},
            "y": {"title": "bytes per second", "unit": "B/s", "log": False},
            "series": points,
            "lines": [
                line(f"copy {si(rate, 'B/s')}" if name == "copy" else "", (first, rate), (last, rate), True)
                for name, rate in ceilings.items()
            ],
        },
    )


def _timed(machine: Machine) -> list[Row]:
    return [row for row in machine.rows if positive(row["us"])]


def _points(
    machine: Machine, rows: Sequence[Row], x: Callable[[Row], float], y: Callable[[Row], float], unit: str
) -> list[Spec]:
    """A series for each contender; the marks of a backward are hollow."""
    short = short_names(machine.rows)

    def point(row: Row) -> Spec:
        label = f"{row['contender']}, {short(row['op'])} {row['sample']} {row['dtype']} {row['direction']}"
        text = f"{label}: {si(y(row), unit)}{_of_limit(row)}"
        return {"x": x(row), "y": y(row), "hollow": row["direction"] != "forward", "text": text}

    return series(machine, rows, lambda name, members: {"points": [point(row) for row in members]})


def _of_limit(row: Row) -> str:
    share = number(row.get("share"))
    return "" if share is None else f", {percent(share)} of the {row.get('limit', 'limit')} limit"
