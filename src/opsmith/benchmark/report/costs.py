"""Charts of what a call costs beside its kernels: the host, memory, the first time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..results import Row
from .figures import Figure, bars, grouped, mark, short_names
from .machines import Machine, in_order
from .numbers import memory, number, positive, three, times


def host(machine: Machine) -> Figure | None:
    """The cost of a call on the host, for the smallest arguments of each op."""
    rows = [row for row in machine.rows if positive(row.get("host_us"))]
    chosen = _one_each(rows, "host_us", smallest=True)
    return _cost(
        machine,
        chosen,
        "Host",
        "Microseconds that a call takes on the host, before the GPU has done anything, for small arguments: what a "
        "model of many small ops waits for.",
        "host_us",
        "µs a call",
        lambda value: f"{three(value)} µs",
    )


def peak(machine: Machine) -> Figure | None:
    """Peak memory over what must be held, for the largest arguments of each op."""
    rows = [
        {**row, "of_held": row["peak_bytes"] / row["held_bytes"]}
        for row in machine.rows
        if number(row.get("peak_bytes")) is not None and positive(row.get("held_bytes"))
    ]
    chosen = _one_each(rows, "of_held", smallest=False)
    figure = _cost(
        machine,
        chosen,
        "Peak memory",
        "The most memory beyond the inputs that a call had at any time, in times of what its results and gradients "
        "take, for the largest arguments of each op. At 1 it holds these and nothing else.",
        "of_held",
        "peak, in times of what is held",
        times,
        lambda row: f": {memory(row['peak_bytes'])} where {memory(row['held_bytes'])} are held",
    )
    if figure is not None:
        figure.spec["at"] = 1
    return figure


def cold(machine: Machine) -> Figure | None:
    """First calls: compilation and all."""
    rows = [row for row in machine.rows if positive(row.get("cold_s"))]
    return _cost(
        machine,
        _one_each(rows, "cold_s", smallest=True, directions=False),
        "First call",
        "Seconds that forward and backward take for the first time, in a new process with empty caches: what a user "
        "waits for while kernels are compiled.",
        "cold_s",
        "s",
        lambda value: f"{three(value)} s",
    )


def _one_each(
    rows: Sequence[Row], key: str, *, smallest: bool, directions: bool = True
) -> dict[tuple[str, str], dict[str, Row]]:
    """{(op, direction): {contender: row}}: of the smallest or largest arguments, the greatest value over dtypes."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for (op, direction), cells in grouped(rows, "op", "direction").items():
        size = (min if smallest else max)(positive(row.get("elements")) or 0 for row in cells)
        entry = found.setdefault((op, direction if directions else ""), {})
        for row in cells:
            held = entry.get(row["contender"])
            if (positive(row.get("elements")) or 0) == size and (held is None or row[key] > held[key]):
                entry[row["contender"]] = row
    return found


def _cost(
    machine: Machine,
    chosen: dict[tuple[str, str], dict[str, Row]],
    title: str,
    caption: str,
    key: str,
    axis: str,
    say: Callable[[float], str],
    more: Callable[[Row], str] = lambda row: "",
) -> Figure | None:
    if not chosen:
        return None
    short = short_names(machine.rows)
    series = []
    for name in in_order({name for rows in chosen.values() for name in rows}):
        found = [rows.get(name) for rows in chosen.values()]
        series.append(
            {
                "name": name,
                "mark": mark(name, machine.contenders),
                "values": [row and row[key] for row in found],
                "texts": [f"{name}: {say(row[key])}{more(row)}" if row else "" for row in found],
            }
        )
    labels = [[part for part in (short(op), direction) if part] for op, direction in chosen]
    return Figure(title, caption, bars(labels, series, axis, base=0))
