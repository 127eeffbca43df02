"""Doctor's report in a terminal: a line a probe, and below what is not ok its fix and what works without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ... import __version__
from .._screen import STYLES, output
from .finding import Line, Probe

_MARKS = {"ok": "✓", "missing": "○", "broken": "✗"}


def print_report(probes: Sequence[Probe], lines: Iterable[Line]) -> list[Line]:
    """Prints each line as it becomes known; a spinner names the one that is waited for."""
    output.print(Text.assemble(("opsmith ", "bold"), (__version__, "bold"), ("  doctor", "dim")))
    output.print()
    title_width = max(len(probe.title) for probe in probes)
    shown = []
    for line in _waiting(probes, lines):
        output.print(_rows(line, title_width))
        shown.append(line)
    output.print()
    counts = Counter(line.status for line in shown)
    parts = [Text(f"{counts[status]} {status}", STYLES[status]) for status in ("ok", "missing", "broken") if counts[status]]
    output.print(Text(", ").join(parts))
    output.print("opsmith is for Linux with NVIDIA GPUs. ROCm, Windows and macOS are out of scope for now.", style="dim")
    return shown


def _waiting(probes: Sequence[Probe], lines: Iterable[Line]) -> Iterator[Line]:
    remaining = iter(lines)
    for probe in probes:
        with output.status(Text(f"{probe.title} ...", "dim"), spinner_style="dim"):
            line = next(remaining)
        yield line


def _rows(line: Line, title_width: int) -> Padding:
    style = STYLES[line.status]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=len("✓ missing"), no_wrap=True)
    grid.add_column(width=title_width, no_wrap=True)
    grid.add_column(overflow="fold", ratio=1)
    detail = Text(line.found)
    for label, words, words_style in (("fix", line.fix, "bold"), ("without it", line.without, "dim")):
        if words is not None:
            detail.append(f"\n{label}: ", "dim").append(words, words_style)
    grid.add_row(Text(f"{_MARKS[line.status]} {line.status}", style), Text(line.title, "bold"), detail)
    return Padding(grid, (0, 0, 0, 0))
