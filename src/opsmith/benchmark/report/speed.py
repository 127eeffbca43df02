"""Charts of contenders beside each other: speed op by op, sample by sample, and from small arguments to large."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..results import Row
from ..shapes import described
from .figures import Figure, Spec, bars, grouped, line, mark, short_names
from .machines import Machine, in_order
from .numbers import geometric_mean, positive, si, three, times

LEAST_SIZES, LEAST_SPAN, LEAST_LARGEST = 3, 16, 1 << 14
"""What makes rows of several sizes a line: so many, so far apart, and not all of them tiny."""


def overview(machine: Machine) -> Figure | None:
    """A bar an op and baseline: the mean over its samples."""
    rows = [row for row in machine.rows if positive(row.get("speedup"))]
    ops = list(dict.fromkeys(row["op"] for row in rows))
    if len(ops) < 2:
        return None
    short, baselines = short_names(machine.rows), in_order({row["contender"] for row in rows})
    cells = grouped(rows, "op", "contender")
    series = []
    for name in baselines:
        found = [[row["speedup"] for row in cells.get((op, name), [])] for op in ops]
        series.append(
            {
                "name": name,
                "mark": mark(name, machine.contenders),
                "values": [geometric_mean(each) if each else None for each in found],
                "low": [min(each, default=None) for each in found],
                "high": [max(each, default=None) for each in found],
                "texts": [_mean_text(name, each) if each else "" for each in found],
            }
        )
    return Figure(
        "Speed, op by op",
        "How many times as long as opsmith each takes: right of 1, opsmith is faster. A bar is the geometric mean over "
        "all samples, dtypes and directions; its thin line goes from the least to the greatest.",
        bars([[short(op)] for op in ops], series, "time, in times of opsmith's", base=1),
        wide=True,
    )


def _mean_text(name: str, ratios: Sequence[float]) -> str:
    mean, least, most = (times(each) for each in (geometric_mean(ratios), min(ratios), max(ratios)))
    return f"{name}: {mean}, from {least} to {most} in {len(ratios)} samples"


def speed(machine: Machine, op: str) -> list[Figure]:
    """A chart a direction and dtype; a bar a sample and baseline, with its 95 % interval."""
    rows = [row for row in machine.rows if row["op"] == op and positive(row.get("speedup"))]
    figures = []
    for (direction, dtype), cells in grouped(rows, "direction", "dtype").items():
        samples = list(dict.fromkeys(row["sample"] for row in cells))
        series = []
        for name in in_order({row["contender"] for row in cells}):
            found = {row["sample"]: row for row in cells if row["contender"] == name}
            chosen = [found.get(sample) for sample in samples]
            series.append(
                {
                    "name": name,
                    "mark": mark(name, machine.contenders),
                    "values": [row and row["speedup"] for row in chosen],
                    "low": [row and positive(row.get("speedup_low")) for row in chosen],
                    "high": [row and positive(row.get("speedup_high")) for row in chosen],
                    "texts": [_speed_text(name, row) if row else "" for row in chosen],
                }
            )
        spec = bars([[_sized(sample)] for sample in samples], series, "time, in times of opsmith's", base=1)
        figures.append(Figure(f"Speed, {direction}, {dtype}", "", spec))
    return figures


def _sized(sample: str) -> str:
    """'16777216' -> '16 M': a name that is nothing but a number of elements."""
    return described(int(sample)) if sample.isascii() and sample.isdigit() else sample


def _speed_text(name: str, row: Row) -> str:
    low, high = positive(row.get("speedup_low")), positive(row.get("speedup_high"))
    between = f", {times(low)} to {times(high)}" if low and high else ""
    return f"{name}: {three(row['us'])} µs, {times(row['speedup'])}{between}"


def scaling(machine: Machine, op: str) -> list[Figure]:
    """A chart a direction, dtype and layout of which there are rows of several sizes; a line a contender."""
    rows = [row for row in machine.rows if row["op"] == op and positive(row.get("elements")) and positive(row["us"])]
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        families.setdefault((row["direction"], row["dtype"], layout(row["sample"])), []).append(row)
    figures = []
    for (direction, dtype, name), members in families.items():
        if _isline(members):
            title = ", ".join(filter(None, ("Scaling", direction, dtype, name)))
            figures.append(Figure(title, "", _scaling(machine, members)))
    return figures


def layout(sample: str) -> str:
    """A sample's name without sizes: '4096x1024 sliced' -> 'sliced', '2^20' -> ''."""
    return " ".join(re.sub(r"\d+(?:[\^x*,.]?\d+)*", " ", sample).split())


def _isline(rows: Sequence[Row]) -> bool:
    """Whether some contender was measured at enough sizes."""
    return any(map(_spans, grouped(rows, "contender").values()))


def _spans(rows: Sequence[Row]) -> bool:
    sizes = {row["elements"] for row in rows}
    return len(sizes) >= LEAST_SIZES and max(sizes) >= max(LEAST_LARGEST, LEAST_SPAN * min(sizes))


def _scaling(machine: Machine, rows: Sequence[Row]) -> Spec:
    moved = all(positive(row.get("bytes")) for row in rows)
    unit, what = ("B/s", "bytes") if moved else ("", "elements")
    series = []
    for name in in_order({row["contender"] for row in rows}):
        sizes: dict[int, list[Row]] = {}
        for row in rows:
            if row["contender"] == name:
                sizes.setdefault(row["elements"], []).append(row)
        points = []
        for size in sorted(sizes):
            took = geometric_mean(row["us"] for row in sizes[size])
            rate = sizes[size][0][what] / took * 1e6
            text = f"{name}, {size:,} elements: {three(took)} µs, {si(rate, unit or 'elements/s')}"
            points.append({"x": size, "y": rate, "text": text})
        series.append({"name": name, "mark": mark(name, machine.contenders), "points": points})
    copy = machine.ceilings.get("copy")
    ends = [row["elements"] for row in rows]
    return {
        "kind": "lines",
        "x": {"title": "elements", "unit": "elements", "log": True},
        "y": {"title": f"{what} a second", "unit": unit, "log": True},
        "series": series,
        "lines": [line(f"copy {si(copy, 'B/s')}", (min(ends), copy), (max(ends), copy), True)]
        if moved and copy
        else [],
    }
