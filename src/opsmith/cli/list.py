"""`opsmith list`: ops with their schemas, what their authors wrote, and which tier serves their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from ..errors.base import plural
from ._ops import selected
from ._options import From, Json, Ops
from ._screen import STYLES, output, prepare_json, write_json

if TYPE_CHECKING:
    from ..operator.op import Op

TIERS = {"native": "C++", "python": "Python"}
GENERATED = "generated kernels"


def command(names: Ops = None, sources: From = None, json: Json = None) -> None:
    """List ops with their schemas and what their authors wrote."""
    prepare_json(json)
    facts = [_facts(op) for op in selected(names or (), sources or (), "list")]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", expand=False)
    table.add_column("op", ratio=3, overflow="fold")
    table.add_column("written or generated", ratio=2)
    table.add_column("tier", no_wrap=True)
    for each in facts:
        title = Text.assemble((each["name"], "bold"), "\n", (each["schema"].removeprefix(each["name"]), "dim"))
        table.add_row(title, _kinds(each), TIERS[each["tier"]])
    output.print(table)
    output.print(f"\n{plural(len(facts), 'op')}. `opsmith show NAME` shows the parts of an op.", style="dim")
    write_json(json, {"ops": facts})


def _facts(op: Op) -> dict[str, Any]:
    from ..operator.describe import generated, parts

    return {
        "name": op.name,
        "schema": op.schema,
        "written": [part.name for part in parts(op) if part.status == "written" and part.name != "reference"],
        "generated": any(map(generated, op._families.default.forward.kernels.values())),
        "tier": op._families.default.forward.attachment.tier,
    }


def _kinds(facts: dict[str, Any]) -> Text:
    shown = [(GENERATED, STYLES["generated"])] if facts["generated"] else []
    shown += [(name, STYLES["written"]) for name in facts["written"]]
    return Text(", ").join(Text(*each) for each in shown) if shown else Text("only the reference", "dim")
