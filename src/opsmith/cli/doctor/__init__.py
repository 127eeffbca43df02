"""`opsmith doctor`: proves each tool by using it, and tells what mends those that fail and what works meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from .._screen import FAILED, RefusedError, errors
from .finding import Line
from .probes import PATHS, PROBES


def _known() -> dict[str, tuple[str, ...]]:
    """What --require takes, and the probes each name stands for."""
    return {**PATHS, **{probe.name: (probe.name,) for probe in PROBES}}


def command(
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Exit with 1 unless this works: {', '.join(_known())}.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Prove compilers, drivers and packages by using each, and tell how to mend what does not work."""
    for name in require or ():
        if name not in _known():
            raise RefusedError(f"--require {name}: doctor knows no such thing. It knows {', '.join(_known())}.")
    lines = _print_json() if as_json else _print_report()
    working = {line.probe: line.status == "ok" for line in lines}
    failing = {name: [part for part in _known()[name] if not working.get(part)] for name in require or ()}
    for name, parts in failing.items():
        if parts:
            errors.print(f"[bold red]required:[/] {name} does not work: see {', '.join(parts)}.", soft_wrap=True)
    if any(failing.values()):
        raise typer.Exit(FAILED)


def _lines() -> Iterator[Line]:
    if sys.platform != "linux":  # the others need Linux to be asked at all
        from .probes.system import system

        yield Line.of(PROBES[0], system(), 0.0)
        return
    from .guard import examine

    yield from examine(PROBES)


def _print_json() -> list[Line]:
    lines = []
    for line in _lines():
        print(json.dumps(line.facts()), flush=True)
        lines.append(line)
    return lines


def _print_report() -> list[Line]:
    from .report import print_report

    return print_report(PROBES, _lines())
