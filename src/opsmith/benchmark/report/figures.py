"""What a chart is: its title, its caption, and what page.js draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..contenders import OPSMITH
from ..results import Row

Spec = dict[str, Any]
KNOWN = (OPSMITH, "eager", "compile", "compile-max", "liger")
"""Each has a colour and a mark of its own on every chart; kernels share those that are left."""
MARKS = 8


@dataclass(frozen=True)
class Figure:
    """`spec`: for page.js. `wide`: it takes the page's whole width."""

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
    """`left`: where its name is written, if it is flat. Without a name it is a lesser one."""
    return {"label": label, "left": left, "points": [{"x": x, "y": y} for x, y in (start, end)]}


def bars(labels: Sequence[Sequence[str]], series: Sequence[Spec], axis: str, base: int) -> Spec:
    """`labels`: in parts, which are lines where there is little room. `base` 1: ratios, on a logarithmic axis, bars
    from 1 to either side."""
    return {"kind": "bars", "labels": labels, "series": series, "x": {"title": axis, "log": base == 1}, "base": base}
