"""A machine's rows in a screenful, for those who do not open the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ._bench_table import bar

if TYPE_CHECKING:
    from ..benchmark.report import Machine

BAR = 8


def summary(machine: Machine) -> Group:
    """A line an op, dtype and direction: how many times as fast as each of the others it is, over all samples, and its
    share of the limit on the largest."""
    from ..benchmark.contenders import OPSMITH
    from ..benchmark.report.figures import short_names
    from ..benchmark.report.numbers import geometric_mean, positive, three

    short = short_names(machine.rows)
    others = [name for name in machine.contenders if name != OPSMITH]
    table = Table(header_style="dim", box=None, padding=(0, 2, 0, 0))
    table.add_column("op", overflow="fold")
    table.add_column("dtype", no_wrap=True)
    table.add_column("direction", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of the limit", no_wrap=True)
    for op, dtype, direction in dict.fromkeys((r["op"], r["dtype"], r["direction"]) for r in machine.rows):
        rows = [r for r in machine.rows if (r["op"], r["dtype"], r["direction"]) == (op, dtype, direction)]
        cells = []
        for name in others:
            found = [s for r in rows if r["contender"] == name and (s := positive(r.get("speedup"))) is not None]
            mean = geometric_mean(found) if found else None
            cells.append(Text("" if mean is None else f"{three(mean)}x", "green" if mean and mean > 1 else "red"))
        own = [r for r in rows if r["contender"] == OPSMITH and positive(r.get("share")) is not None]
        largest = max(own, key=lambda r: positive(r.get("elements")) or 0.0, default=None)
        share = largest["share"] if largest else 0.0
        told = f"{bar(share, BAR)} {share:4.0%}" if largest else ""
        table.add_row(Text(short(op)), dtype, direction, *cells, Text(told))
    return Group(Text.assemble((machine.name, "bold"), ("  opsmith, times as fast as", "dim")), table)
