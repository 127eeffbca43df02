"""`opsmith show NAME`: one op, part by part: what is written, what is derived, and which calls go through Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ._screen import STYLES, output
from ._sources import find

if TYPE_CHECKING:
    from ..kernels import Kernel
    from ..op import Op


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An op's name: mylib::mish", show_default=False)],
    sources: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="MODULE|FILE.py", help="Where it is declared.", show_default=False),
    ] = None,
) -> None:
    """One op, part by part: written by its author, derived from the reference, or absent."""
    from .. import describe, runtime

    op = find(name, sources or ())
    output.print(Text(op.schema, "bold"))
    output.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part in describe.parts(op):
        style = STYLES[part.status]
        detail = Text(part.detail, style if part.status == "absent" else "")
        table.add_row(Text(part.name, style), Text(part.status, style), detail)
    table.add_row()
    table.add_row("runtime", "", Text(f"{describe.runtime(op)}: {runtime.reason()}"))
    for number, call in enumerate(python_calls(op)):
        table.add_row("" if number else "Python runs in", "", Text(call))
    output.print(table)


def python_calls(op: Op) -> list[str]:
    """The calls of the op that go through Python, and why; one that is not named is C++ throughout."""
    default = op.default
    if default.forward.attachment.tier != "native":
        return ["every call (the C++ runtime does not serve this process)"]
    calls = _by_reason("forward", default.forward.kernels, "the reference")
    if default.differentiable.written_gradient is not None:
        calls.append("backward (register_autograd)")
    else:
        calls += _by_reason("backward", default.backward.kernels, "the reference and its vjp")
    return calls or ["no call"]


def _by_reason(call: str, kernels: Mapping[str, Kernel], derived: str) -> list[str]:
    """['forward on cpu and cuda (the reference)']: the devices on which a call goes through Python, and why."""
    devices: dict[str, list[str]] = {}
    for device in ("cpu", "cuda"):
        kernel = kernels.get(device)
        if kernel is None:
            devices.setdefault(derived, []).append(device)
        elif kernel.native is None:
            devices.setdefault("a kernel launched from Python", []).append(device)
    return [f"{call} on {' and '.join(where)} ({reason})" for reason, where in devices.items()]
