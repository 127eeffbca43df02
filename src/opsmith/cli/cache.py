"""`opsmith cache`: where compiled code is kept, how large it is, and how to be rid of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from ._screen import output, size, tilde


def command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every build that is not under way.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Where compiled code is kept and how large it is; --clear empties it."""
    from .. import toolchain

    usage = toolchain.clear() if clear else toolchain.usage()
    if as_json:
        facts = {"directory": str(usage.directory), "builds": usage.entries, "bytes": usage.bytes, "cleared": clear}
        print(json.dumps(facts))
        return
    builds = "1 build" if usage.entries == 1 else f"{usage.entries} builds"
    place = escape(tilde(usage.directory))
    if clear:
        output.print(f"Removed [bold]{builds}[/], {size(usage.bytes)}, from [bold]{place}[/].", soft_wrap=True)
        return
    output.print(f"[bold]{place}[/]  {builds}, {size(usage.bytes)}", soft_wrap=True)
    output.print("Set OPSMITH_CACHE_DIR to keep it elsewhere; `opsmith cache --clear` empties it.", style="dim")
