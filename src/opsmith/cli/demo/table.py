"""The demo's table: every op, its error, its times."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._screen import STYLES

if TYPE_CHECKING:
    from .measuring import Row

WHO = {"opsmith": 7, "eager": 7, "compile": 8}
"""The implementations, with the widths of their columns."""


def of(rows: Sequence[Row], device: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", title=_title(rows, device), title_justify="left"
    )
    table.add_column("op", no_wrap=True, vertical="bottom")
    table.add_column("error", justify="right", no_wrap=True, vertical="bottom")
    heading = "".join(f"{who:>{width}}" for who, width in WHO.items())
    for part in ("forward", "forward + backward"):
        table.add_column(f"{part:>{len(heading)}}\n{heading}", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.op.__name__, _error(row), _times(row.forward), _times(row.both))
    return table


def _title(rows: Sequence[Row], device: str) -> Text:
    import torch

    from .measuring import elements, timed_sample

    count = max(elements(timed_sample(row.op, device)) for row in rows)
    where = torch.cuda.get_device_name() if device == "cuda" else f"the CPU, {torch.get_num_threads()} threads"
    return Text(f"Milliseconds per call on {where}; {count:,} elements, float32")


def _error(row: Row) -> Text:
    share = f"{row.share_of_allowed:.0%}"
    return Text(f"{share:>5} ok", STYLES["ok"]) if row.correct else Text(f"{share:>5} wrong", STYLES["broken"])


def _times(times: Mapping[str, float]) -> Text:
    """The times in a line, the least of them in green."""
    least = min(times.values(), default=0.0)
    text = Text()
    for who, width in WHO.items():
        shown = _milliseconds(times[who]) if who in times else "-"
        style = STYLES["ok"] if times.get(who) == least else "dim" if who not in times else ""
        text.append(f"{shown:>{width}}", style)
    return text


def _milliseconds(seconds: float) -> str:
    """Three digits: 0.0312, 0.312, 3.12, 31.2, 312."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def notes(rows: Sequence[Row], refusal: str, load: float) -> Group:
    """What a reader of the table should know. `refusal`: why kernels were not built; `load`: of other programs."""
    from ... import runtime

    lines = ["error: the largest error of results and gradients; 100% is the allowed rounding error."]
    untimed = [row for row in rows if row.no_compile]
    if untimed:
        which = "no op" if len(untimed) == len(rows) else f"{len(rows) - len(untimed)} of {len(rows)} ops"
        reasons = dict.fromkeys(row.no_compile for row in untimed)
        lines.append(f"compile: torch.compile was timed on {which}: {'; '.join(reasons)}.")
    if runtime.tier() != "native":
        lines.append(f"opsmith: calls go through Python here, not C++ ({runtime.reason()}).")
    cores = os.cpu_count() or 1
    if load > cores / 2:
        lines.append(f"Other programs keep this machine busy (load {load:.1f}, {cores} cores): the times are rough.")
    if refusal:
        lines.append(refusal)
    return Group(*(Text(line, "dim") for line in lines), Text())
