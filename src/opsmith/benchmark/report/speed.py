"""Charts that compare contenders: speed by op and by sample, and scaling from small arguments to large."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import geometric_mean

from ..results import Row
from ..shapes import described
from .figures import Figure, Spec, bars, grouped, line, series, short_names
from .machines import Machine
from .numbers import positive, si, three, times

LEAST_SIZES, LEAST_SPAN, LEAST_LARGEST = 3, 16, 1 << 14
"""Rows make a line if they have this many sizes, this far apart, and not all of them tiny."""
AXIS = "time relative to opsmith's"


def overview(machine: Machine) -> Figure | None:
    """A bar for each op and baseline: the mean over its samples."""
    rows = [row for row in machine.rows if positive(row.get("speedup"))]
    ops = list(dict.fromkeys(row["op"] for row in rows))
    if len(ops) < 2:
        return None
    short = short_names(machine.rows)

    def means(name: str, members: list[Row]) -> Spec:
        by_op = grouped(members, "op")
        found = [[row["speedup"] for row in by_op.get((op,), [])] for op in ops]
        return {
            "values": [geometric_mean(each) if each else None for each in found],
            "low": [min(each, default=None) for each in found],
            "high": [max(each, default=None) for each in found],
            "texts": [_mean_text(name, each) if each else "" for each in found],
        }

    return Figure(
        "Speed, op by op",
        "The time of each relative to opsmith's: right of 1, opsmith is faster. A bar is the geometric mean over all "
        "samples, dtypes and directions; its thin line is the range.",
        bars([[short(op)] for op in ops], series(machine, rows, means), AXIS, base=1),
        wide=True,
    )


def _mean_text(name: str, ratios: Sequence[float]) -> str:
    mean, least, most = (times(each) for each in (geometric_mean(ratios), min(ratios), max(ratios)))
    return f"{name}: {mean}, from {least} to {most} in {len(ratios)} samples"


def speed(machine: Machine, op: str) -> list[Figure]:
    """A chart for each direction and dtype; a bar for each sample and baseline, with its 95 % interval."""
    rows = [row for row in machine.rows if row["op"] == op and positive(row.get("speedup"))]
    figures = []
    for (direction, dtype), cells in grouped(rows, "direction", "dtype").items():
        samples = list(dict.fromkeys(row["sample"] for row in cells))

        def ratios(name: str, members: list[Row], samples: list[str] = samples) -> Spec:
            found = {row["sample"]: row for row in members}
            chosen = [found.get(sample) for sample in samples]
            return {
                "values": [row and row["speedup"] for row in chosen],
                "low": [row and positive(row.get("speedup_low")) for row in chosen],
                "high": [row and positive(row.get("speedup_high")) for row in chosen],
                "texts": [_speed_text(name, row) if row else "" for row in chosen],
            }

        spec = bars([[_sized(sample)] for sample in samples], series(machine, cells, ratios), AXIS, base=1)
        figures.append(Figure(f"Speed, {direction}, {dtype}", "", spec))
    return figures


def _sized(sample: str) -> str:
    """'16777216' -> '16 M': for a name that is a number of elements."""
    return described(int(sample)) if sample.isascii() and sample.isdigit() else sample


def _speed_text(name: str, row: Row) -> str:
    low, high = positive(row.get("speedup_low")), positive(row.get("speedup_high"))
    between = f", {times(low)} to {times(high)}" if low and high else ""
    return f"{name}: {three(row['us'])} µs, {times(row['speedup'])}{between}"


def scaling(machine: Machine, op: str) -> list[Figure]:
    """A chart for each direction, dtype and layout with rows of several sizes; a line for each contender."""
    rows = [row for row in machine.rows if row["op"] == op and positive(row.get("elements")) and positive(row["us"])]
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        families.setdefault((row["direction"], row["dtype"], layout(row["sample"])), []).append(row)
    return [
        Figure(", ".join(filter(None, ("Scaling", *family))), "", _scaling(machine, members))
        for family, members in families.items()
        if any(map(_spans, grouped(members, "contender").values()))
    ]


def layout(sample: str) -> str:
    """A sample's name without sizes: '4096x1024 sliced' -> 'sliced', '2^20' -> ''."""
    return " ".join(re.sub(r"\d+(?:[\^x*,.]?\d+)*", " ", sample).split())


def _spans(rows: Sequence[Row]) -> bool:
    """Whether a contender's rows have enough sizes for a line."""
    sizes = {row["elements"] for row in rows}
    return len(sizes) >= LEAST_SIZES and max(sizes) >= max(LEAST_LARGEST, LEAST_SPAN * min(sizes))


def _scaling(machine: Machine, rows: Sequence[Row]) -> Spec:
    moved = all(positive(row.get("bytes")) for row in rows)
    unit, what = ("B/s", "bytes") if moved else ("", "elements")

    def points(name: str, members: list[Row]) -> Spec:
        found = []
        for (size,), cells in sorted(grouped(members, "elements").items()):
            took = geometric_mean(row["us"] for row in cells)
            rate = cells[0][what] / took * 1e6
            text = f"{name}, {size:,} elements: {three(took)} µs, {si(rate, unit or 'elements/s')}"
            found.append({"x": size, "y": rate, "text": text})
        return {"points": found}

    copy = machine.ceilings.get("copy")
    sizes = [row["elements"] for row in rows]
    lines = [line(f"copy {si(copy, 'B/s')}", (min(sizes), copy), (max(sizes), copy), True)] if moved and copy else []
    return {
        "kind": "lines",
        "x": {"title": "elements", "unit": "elements", "log": True},
        "y": {"title": f"{what} per second", "unit": unit, "log": True},
        "series": series(machine, rows, points),
        "lines": lines,
    }
