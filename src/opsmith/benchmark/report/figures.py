"""A chart: its title, its caption, and the data that page.js draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..contenders import BASELINES, OPSMITH
from ..results import Row
from .machines import Machine, in_order

Spec = dict[str, Any]
KNOWN = (OPSMITH, *BASELINES)  # each has the same colour and mark on every chart; kernels share the rest
MARKS = 8


@dataclass(frozen=True)
class Figure:
    """`spec`: for page.js. `wide`: over the page's whole width."""

    title: str
    caption: str
    spec: Spec
    wide: bool = False


def mark(contender: str, contenders: Sequence[str]) -> int:
    """Which colour and mark, of MARKS."""
    if contender in KNOWN:
        return KNOWN.index(contender)
    others = [name for name in contenders if name not in KNOWN]
    return len(KNOWN) + others.index(contender) % (MARKS - len(KNOWN))


def series(machine: Machine, rows: Iterable[Row], data: Callable[[str, list[Row]], Spec]) -> list[Spec]:
    """A series for each contender in `rows`; `data` makes its values or points from its name and rows."""
    by_name = {name: members for (name,), members in grouped(rows, "contender").items()}
    return [
        {"name": name, "mark": mark(name, machine.contenders), **data(name, by_name[name])}
        for name in in_order(by_name)
    ]


def short_names(rows: Iterable[Row]) -> Callable[[str], str]:
    """'opsmith::mish' -> 'mish', where there is only one namespace."""
    spaces = {row["op"].rpartition("::")[0] for row in rows}
    return (lambda name: name.rpartition("::")[2]) if len(spaces) <= 1 else (lambda name: name)


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return groups


def line(label: str, start: tuple[float, float], end: tuple[float, float], left: bool = False) -> Spec:
    """`left`: a flat line's label is on the left. A line without a label is dashed."""
    return {"label": label, "left": left, "points": [{"x": x, "y": y} for x, y in (start, end)]}


def bars(labels: Sequence[Sequence[str]], series: Sequence[Spec], axis: str, base: int) -> Spec:
    """`labels`: in parts, which may be on separate lines. `base` 1: ratios, on a logarithmic axis, with bars from 1 to
    either side."""
    return {"kind": "bars", "labels": labels, "series": series, "x": {"title": axis, "log": base == 1}, "base": base}
