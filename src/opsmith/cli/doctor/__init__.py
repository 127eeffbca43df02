"""`opsmith doctor`: proves each tool by using it, and tells what mends those that fail and what works meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from .._screen import FAILED, RefusedError, errors
from .finding import Line, Probe
from .probes import PATHS, PROBES


def command(
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Exit with 1 unless this works; may be given again.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Prove compilers, drivers and packages by using each, and tell how to mend what does not work."""
    probes = PROBES if sys.platform == "linux" else PROBES[:1]
    required = _required(require or (), PROBES)
    lines = _print_json(probes) if as_json else _print_report(probes)
    statuses = {line.probe: line.status for line in lines}
    failing = {
        name: [f"{probe} is {statuses.get(probe, 'missing')}" for probe in needs if statuses.get(probe) != "ok"]
        for name, needs in required.items()
    }
    for name, reasons in failing.items():
        if reasons:
            errors.print(f"[bold red]required:[/] {name} does not work: {', '.join(reasons)}.", soft_wrap=True)
    if any(failing.values()):
        raise typer.Exit(FAILED)


def _required(names: Sequence[str], probes: Sequence[Probe]) -> dict[str, tuple[str, ...]]:
    """What was asked for by --require, and the probes each stands for."""
    known = {**{probe.name: (probe.name,) for probe in probes}, **PATHS}
    for name in names:
        if name not in known:
            raise RefusedError(f"--require {name}: doctor knows no such thing. It knows {', '.join(sorted(known))}.")
    return {name: known[name] for name in names}


def _print_json(probes: Sequence[Probe]) -> list[Line]:
    from .guard import examine

    lines = []
    for line in examine(probes):
        print(json.dumps(line.facts()), flush=True)
        lines.append(line)
    return lines


def _print_report(probes: Sequence[Probe]) -> list[Line]:
    from .guard import examine
    from .report import print_report

    return print_report(probes, examine(probes))
