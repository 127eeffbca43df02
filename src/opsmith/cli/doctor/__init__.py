"""`opsmith doctor`: proves each tool by using it, and names a fix for each one that fails and what works without it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ... import __version__
from .._options import Json, option
from .._screen import FAILED, STYLES, RefusedError, errors, output, prepare_json, write_json
from .finding import Line, Probe, Status
from .probes import PATHS, PROBES

_MARKS: dict[Status, str] = {"ok": "✓", "missing": "○", "broken": "✗"}


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
    for name in require or ():
        if name not in _known():
            raise RefusedError(f"--require {name}: doctor has no such probe. It has {', '.join(_known())}.")
    prepare_json(json)
    lines = _print_report(PROBES, _lines())
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


def _print_report(probes: Sequence[Probe], lines: Iterator[Line]) -> list[Line]:
    """Prints each line as soon as it is known; a spinner names the next one."""
    output.print(Text.assemble((f"opsmith {__version__}", "bold"), ("  doctor", "dim")))
    output.print()
    title_width = max(len(probe.title) for probe in probes)
    shown = []
    for line in _waited_for(probes, lines):
        output.print(_row(line, title_width))
        shown.append(line)
    output.print()
    counts = Counter(line.status for line in shown)
    counted = [Text(f"{counts[status]} {status}", STYLES[status]) for status in _MARKS if counts[status]]
    output.print(Text(", ").join(counted))
    output.print("For Linux and NVIDIA GPUs; ROCm, Windows and macOS are out of scope for now.", style="dim")
    return shown


def _waited_for(probes: Sequence[Probe], lines: Iterator[Line]) -> Iterator[Line]:
    for probe in probes:
        with output.status(Text(f"{probe.title} ...", "dim"), spinner_style="dim"):
            line = next(lines, None)
        if line is None:
            return
        yield line


def _row(line: Line, title_width: int) -> Table:
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(width=len("✓ missing"), no_wrap=True)
    row.add_column(width=title_width, no_wrap=True)
    row.add_column(ratio=1)
    remedy = Table.grid(padding=(0, 2))
    remedy.add_column(no_wrap=True, style="dim")
    remedy.add_column(overflow="fold")
    if line.fix:
        remedy.add_row("fix", Text(line.fix, "bold"))
    if line.without:
        remedy.add_row("without it", Text(line.without, "dim"))
    found = Text(line.found, overflow="fold")
    if line.proof:
        found.append(f"; {line.proof}", "dim")
    row.add_row(
        Text(f"{_MARKS[line.status]} {line.status}", STYLES[line.status]),
        Text(line.title, "bold"),
        Group(found, remedy) if remedy.row_count else found,
    )
    return row
