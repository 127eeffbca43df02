"""`opsmith show NAME`: one op, part by part: what is written, what is derived, and which calls go through Python."""

from __future__ import annotations

from collections.abc import Iterator
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
    """The calls of the op that go through Python, and why each does; a call named by none is C++ throughout."""
    found = list(_python_calls(op))
    return found or ["no call"]


def _python_calls(op: Op) -> Iterator[str]:
    default = op.default
    if default.forward.attachment.tier != "native":
        yield "every call: the C++ runtime does not serve it"
        return
    for device in ("cpu", "cuda"):
        if why := _why_python(default.forward.kernels.get(device), "the reference"):
            yield f"forward on {device}: {why}"
    if default.differentiable.written_gradient is not None:
        yield "backward: register_autograd's functions are Python"
        return
    for device in ("cpu", "cuda"):
        if why := _why_python(default.backward.kernels.get(device), "the reference and its vjp"):
            yield f"backward on {device}: {why}"


def _why_python(kernel: Kernel | None, derived: str) -> str | None:
    if kernel is None:
        return f"{derived} is Python calling torch's operators"
    return None if kernel.native is not None else "the kernel is launched from Python"
