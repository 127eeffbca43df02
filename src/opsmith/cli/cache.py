"""`opsmith cache`: the directory of compiled code, its size, and how to empty it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ..errors.base import plural
from ._options import Json
from ._screen import output, prepare_json, size, tilde, write_json


def command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every build that is not in progress.")] = False,
    json: Json = None,
) -> None:
    """Show where compiled code is kept and how large it is, or remove it."""
    from .. import toolchain

    prepare_json(json)
    usage = toolchain.clear() if clear else toolchain.usage()
    builds, place = plural(usage.entries, "build"), escape(tilde(usage.directory))
    if clear:
        output.print(f"Removed [bold]{builds}[/], {size(usage.bytes)}, from [bold]{place}[/].", soft_wrap=True)
    else:
        output.print(f"[bold]{place}[/]  {builds}, {size(usage.bytes)}", soft_wrap=True)
        output.print("OPSMITH_CACHE_DIR sets another directory; `opsmith cache --clear` empties it.", style="dim")
    facts = {"directory": str(usage.directory), "builds": usage.entries, "bytes": usage.bytes, "cleared": clear}
    write_json(json, facts)
