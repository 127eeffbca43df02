"""Doctor's report in a terminal: a line for each probe; below one that is not ok, the fix and what works without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ... import __version__
from .._screen import STYLES, output
from .finding import Line, Probe, Status

_MARKS: dict[Status, str] = {"ok": "✓", "missing": "○", "broken": "✗"}


def print_report(probes: Sequence[Probe], lines: Iterator[Line]) -> list[Line]:
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
