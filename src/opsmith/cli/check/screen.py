"""The output of `opsmith check`: in a terminal a table that grows, elsewhere a line per item."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.rule import Rule
from rich.status import Status
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ...checks.report import Item, Report
from ...checks.report import Status as Outcome
from ...errors.base import plural
from .._screen import output

MARKS: dict[Outcome, str] = {"passed": "✓", "failed": "✗", "skipped": "-"}
COLOURS: dict[Outcome, str] = {"passed": "green", "failed": "red", "skipped": "dim"}
FENCE = "```"


class Display:
    """What is shown while items run: nothing."""

    def began(self, report: Report, item: str) -> None:
        pass

    def ended(self, report: Report, item: Item) -> None:
        pass

    def output(self, text: str) -> None:
        """Of the op, its compilers or torch."""


class Lines(Display):
    """A line per item, for logs."""

    def ended(self, report: Report, item: Item) -> None:
        first = item.message.split("\n")[0]
        line = f"{item.status:7} {report.op} {item.name} ({_seconds(item)} s): {first}"
        output.print(Text(line), soft_wrap=True)

    def output(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


class Growing(Display):
    """A table per op, to which rows are added; below it, the items that are running."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._report: Report | None = None
        self._width = 0
        self._running: list[str] = []

    def _title(self, report: Report) -> None:
        self._report = report
        self._width = max(len(name) for name in [*report.unfinished, "item"])
        about = f"{report.where}, {report.level}, seed {report.seed}"
        output.print()
        output.print(Text.assemble((report.op, "bold"), "  ", (about, "dim")))
        output.print(Rule(style="dim"))

    def began(self, report: Report, item: str) -> None:
        if report is not self._report:
            self._title(report)
        self._running.append(item)
        self._status.update(Text(", ".join(self._running), "dim"))

    def ended(self, report: Report, item: Item) -> None:
        if item.name in self._running:
            self._running.remove(item.name)
        self._status.update(Text(", ".join(self._running), "dim"))
        row = Table.grid(padding=(0, 2, 0, 0), expand=True)
        row.add_column(width=1)
        row.add_column(width=self._width, no_wrap=True)
        row.add_column(ratio=1, overflow="fold")
        row.add_column(width=6, justify="right", no_wrap=True)
        colour = COLOURS[item.status]
        row.add_row(
            Text(MARKS[item.status], colour),
            Text(item.name, "bold red" if item.status == "failed" else colour if item.status == "skipped" else ""),
            Text(item.message.split("\n")[0], "" if item.status == "failed" else "dim"),
            Text(_seconds(item), "dim"),
        )
        output.print(row)

    def output(self, text: str) -> None:
        output.print(Text(text.rstrip("\n"), "dim"), soft_wrap=True)


@contextmanager
def shown() -> Iterator[Display]:
    """The display of items as they begin and end."""
    if not output.is_terminal:
        yield Lines()
        return
    with output.status(Text("importing", "dim"), spinner_style="dim") as status:
        yield Growing(status)


def failures(reports: Iterable[Report]) -> None:
    """Prints each failure with its message and its reproduction, which can be copied; items that failed by the same
    exception are printed once."""
    for report in reports:
        for item, others in _alike(report.failures):
            output.print()
            output.print(Text.assemble((f"{MARKS['failed']} {report.op} {item.name}", "bold red"), f"  {report.where}"))
            output.print(Text(item.message), soft_wrap=True)
            output.print(Text(f"{FENCE}python", "dim"))
            code = Syntax("", "python", theme="ansi_dark").highlight(item.reproduction.rstrip())
            output.print(code, soft_wrap=True, end="")
            output.print(Text(FENCE, "dim"))
            if others:
                names = ", ".join(other.name for other in others)
                output.print(Text(f"The same exception ended {len(others)} more: {names}."), soft_wrap=True)


def _alike(items: Iterable[Item]) -> list[tuple[Item, list[Item]]]:
    """Each item with the later ones that the same exception ended."""
    found: dict[str, tuple[Item, list[Item]]] = {}
    for item in items:
        if item.raised and item.raised in found:
            found[item.raised][1].append(item)
        else:
            found[item.raised or item.name] = item, []
    return list(found.values())


def summary(reports: Sequence[Report], seconds: float) -> None:
    """Prints counts and the time, and for each report without failures that is not ok, why."""
    output.print()
    if len(reports) > 1 and output.is_terminal:
        output.print(_table(reports))
        output.print()
    counts: dict[Outcome, int] = {
        "passed": sum(len(report.passed) for report in reports),
        "failed": sum(len(report.failures) for report in reports),
        "skipped": sum(len(report.skipped) for report in reports),
    }
    counted = Text(", ").join(Text(f"{n} {name}", COLOURS[name] if n else "dim") for name, n in counts.items())
    ops = plural(len({report.op for report in reports}), "op")
    line = Text.assemble((f"{ops}: ", "bold"), counted, f" in {seconds:.1f} s")
    if unfinished := sum(len(report.unfinished) for report in reports):
        line.append(f"; interrupted, {unfinished} not run", "yellow")
    output.print(line)
    for report in reports:
        for reason in _gaps(report):
            output.print(Text.assemble((f"{report.op} is not ok: ", "yellow"), reason), soft_wrap=True)


def _gaps(report: Report) -> list[str]:
    """Why a report without failures is not ok."""
    if report.failures or report.unfinished:
        return []
    if not report.passed:
        return ["nothing was checked, every item was skipped"]
    return [f"{item.name} could not be checked: {item.message}" for item in report.uncovered]


def _table(reports: Sequence[Report]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("op", overflow="fold")
    for name in MARKS:
        table.add_column(name, justify="right")
    table.add_column("s", justify="right")
    table.add_column("failed items", overflow="fold")
    for report in reports:
        counts = (len(report.passed), len(report.failures), len(report.skipped))
        cells = [Text(str(n), COLOURS[name] if n else "dim") for name, n in zip(MARKS, counts, strict=True)]
        names = ", ".join(item.name for item in report.failures)
        table.add_row(report.op, *cells, f"{report.seconds:.1f}", Text(names, "red"))
    return table


def _seconds(item: Item) -> str:
    return f"{item.seconds:.2f}" if item.seconds < 10 else f"{item.seconds:.1f}"
