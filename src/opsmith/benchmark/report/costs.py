"""Charts of the other costs of a call: host time, peak memory, the first call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..results import Row
from .figures import Figure, Spec, bars, grouped, series, short_names
from .machines import Machine
from .numbers import memory, number, positive, three, times


def host(machine: Machine) -> Figure | None:
    """The cost of a call on the host, for the smallest arguments of each op."""
    rows = [row for row in machine.rows if positive(row.get("host_us"))]
    chosen = _one_each(rows, "host_us", smallest=True)
    return _cost(
        machine,
        chosen,
        "Host",
        "Time of a call on the host, without the GPU, for small arguments: it limits a model of many small ops.",
        "host_us",
        "µs per call",
        lambda value: f"{three(value)} µs",
    )


def peak(machine: Machine) -> Figure | None:
    """Peak memory over the size of results and gradients, for the largest arguments of each op."""
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
        "Peak memory of a call beyond its inputs, relative to the size of its results and gradients, for the largest "
        "arguments of each op. At 1 it allocates nothing else.",
        "of_held",
        "peak, relative to results and gradients",
        times,
        lambda row: f": {memory(row['peak_bytes'])} for {memory(row['held_bytes'])}",
    )
    if figure is not None:
        figure.spec["at"] = 1
    return figure


def cold(machine: Machine) -> Figure | None:
    """First calls, compilation included."""
    rows = [row for row in machine.rows if positive(row.get("cold_s"))]
    return _cost(
        machine,
        _one_each(rows, "cold_s", smallest=True, directions=False),
        "First call",
        "Time of the first forward and backward in a new process with empty caches: how long a user waits while "
        "kernels are compiled.",
        "cold_s",
        "s",
        lambda value: f"{three(value)} s",
    )


def _one_each(
    rows: Sequence[Row], key: str, *, smallest: bool, directions: bool = True
) -> dict[tuple[str, str], dict[str, Row]]:
    """{(op, direction): {contender: row}} for the smallest or largest arguments; the greatest value over dtypes."""
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
    shown: Callable[[float], str],
    more: Callable[[Row], str] = lambda row: "",
) -> Figure | None:
    if not chosen:
        return None

    def values(name: str, _: list[Row]) -> Spec:
        found = [rows.get(name) for rows in chosen.values()]
        texts = [f"{name}: {shown(row[key])}{more(row)}" if row else "" for row in found]
        return {"values": [row and row[key] for row in found], "texts": texts}

    short = short_names(machine.rows)
    every = [row for rows in chosen.values() for row in rows.values()]
    labels = [[part for part in (short(op), direction) if part] for op, direction in chosen]
    return Figure(title, caption, bars(labels, series(machine, every, values), axis, base=0))
