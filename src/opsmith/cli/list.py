"""`opsmith list`: every op there is, with its schema and what its author wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ._screen import STYLES, output
from ._sources import declared

if TYPE_CHECKING:
    from ..operator.op import Op

TIERS = {"native": "C++", "python": "Python"}


def command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE|FILE.py]...", help="Where ops of your own are declared.", show_default=False),
    ] = None,
) -> None:
    """The ops shipped with opsmith, and those that the given modules or files declare."""
    ops = declared(sources or ())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", expand=False)
    table.add_column("op", ratio=3, overflow="fold")
    table.add_column("written", ratio=2)
    table.add_column("calls", no_wrap=True)
    for name, op in ops.items():
        table.add_row(_title(name, op), _written(op), TIERS[op._families.default.forward.attachment.tier])
    output.print(table)
    count = "1 op" if len(ops) == 1 else f"{len(ops)} ops"
    output.print(f"\n{count}. `opsmith show NAME` tells an op part by part.", style="dim")


def _title(name: str, op: Op) -> Text:
    """The name, and below it the rest of its schema."""
    return Text.assemble((name, "bold"), "\n", (op.schema.removeprefix(name), "dim"))


def _written(op: Op) -> Text:
    from ..operator.describe import generated, parts

    names = [part.name for part in parts(op) if part.status == "written" and part.name != "reference"]
    made = any(map(generated, op._families.default.forward.kernels.values()))
    shown = [("generated kernels", STYLES["generated"])] if made else []
    shown += [(name, STYLES["written"]) for name in names]
    return Text(", ").join(Text(*each) for each in shown) if shown else Text("the reference alone", "dim")
