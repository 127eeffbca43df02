"""`opsmith doctor`: proves each tool by using it, and names a fix for each one that fails and what works without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from ... import __version__
from .._options import Json, option
from .._screen import FAILED, RefusedError, errors, prepare_json, write_json
from .finding import Line
from .probes import PATHS, PROBES


def _known() -> dict[str, tuple[str, ...]]:
    """What --require takes, and the probes that each name stands for."""
    return {**PATHS, **{probe.name: (probe.name,) for probe in PROBES}}


def command(
    require: Annotated[
        list[str] | None, option(metavar="NAME", help=f"Exit with 1 unless this works: {', '.join(_known())}.")
    ] = None,
    json: Json = None,
) -> None:
    """Test compilers, drivers and packages by using each, and show how to fix what fails."""
    from .report import print_report

    for name in require or ():
        if name not in _known():
            raise RefusedError(f"--require {name}: doctor has no such probe. It has {', '.join(_known())}.")
    prepare_json(json)
    lines = print_report(PROBES, _lines())
    write_json(json, {"opsmith": __version__, "probes": [asdict(line) for line in lines]})
    working = {line.probe: line.status == "ok" for line in lines}
    failing = {name: [part for part in _known()[name] if not working.get(part)] for name in require or ()}
    for name, parts in failing.items():
        if parts:
            errors.print(f"[bold red]required:[/] {name} does not work: see {', '.join(parts)}.", soft_wrap=True)
    if any(failing.values()):
        raise typer.Exit(FAILED)


def _lines() -> Iterator[Line]:
    if sys.platform != "linux":  # the other probes run only on Linux
        from .probes.host import system

        yield Line.of(PROBES[0], system(), 0.0)
        return
    from .guard import examine

    yield from examine(PROBES)
