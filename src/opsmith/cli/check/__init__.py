"""`opsmith check`: the whole checklist on ops, item by item; exit status 1 where one of them fails."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._options import OPS, Device, From, OnDevice
from .._screen import FAILED, RefusedError, writable, write

if TYPE_CHECKING:
    from ...checks.report import Report
    from .job import Job

INTERRUPTED = 130
"""The exit status that shells give to what Ctrl-C has ended."""


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|MODULE|FILE.py|torch.ops.NS.NAME]...", help=OPS, show_default=False),
    ] = None,
    device: OnDevice = None,
    emulate: Annotated[bool, typer.Option("--emulate", help="Run the CUDA kernels on the CPU.")] = False,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Every item thoroughly, or some seconds an op.", show_default=False)
    ] = False,
    seed: Annotated[int, typer.Option(help="Of every random number.")] = 0,
    items: Annotated[
        list[str] | None, typer.Option("--item", metavar="NAME", help="Run this item alone.", show_default=False)
    ] = None,
    sources: From = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION", help="What an operator of torch.ops computes, in PyTorch.", show_default=False
        ),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:FUNCTION", help="What to run that operator on.", show_default=False),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report there.", show_default=False)
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it for CI systems (XML).", show_default=False)
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long one item may take.")] = 600.0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes at once; without, 2 on the CPU and 1 on a GPU.", show_default=False),
    ] = None,
) -> None:
    """Run the whole checklist on ops: what holds, what fails and how to see it, what was skipped and why."""
    from .job import Job

    if emulate and device is Device.cuda:
        raise RefusedError("--emulate runs CUDA kernels on the CPU: leave --device cuda out, or --emulate.")
    for file in (json, junit):
        if file is not None and not file.absolute().parent.is_dir():
            raise RefusedError(f"{file}: there is no directory {file.absolute().parent} to write it into.")
        if file is not None:
            writable(file, "--json" if file is json else "--junit")
    job = Job(
        names=tuple(names or ()),
        sources=tuple(sources or ()),
        reference=reference,
        samples=samples,
        device=device.value if device else None,
        emulate=emulate,
        level="full" if full else "quick",
        seeds=(seed,),
        items=tuple(items) if items else None,
    )
    began = time.monotonic()
    reports, interrupted = _followed(job, timeout, jobs)
    _close(reports, time.monotonic() - began, json, junit)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if not all(reports):
        raise typer.Exit(FAILED)


def _followed(job: Job, timeout: float, jobs: int | None) -> tuple[list[Report], bool]:
    """Shows the job as it goes; the reports, and whether it was interrupted."""
    from . import screen, supervisor

    reports: list[Report] = []
    latest = None
    # A CI system that gives up sends this: it shall have the report of what was done, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with screen.shown() as display, closing(supervisor.supervised(job, timeout, jobs)) as events:
        try:
            for event in events:
                if isinstance(event, supervisor.Planned):
                    reports = event.reports
                elif isinstance(event, supervisor.Said):
                    display.said(event.text)
                elif isinstance(event, supervisor.Began):
                    if event.report is not latest:
                        display.report(event.report)
                        latest = event.report
                    display.began(event.report, event.item)
                else:
                    display.ended(event.report, event.item)
        except KeyboardInterrupt:
            return reports, True
    return reports, False


def _close(reports: list[Report], seconds: float, json: Path | None, junit: Path | None) -> None:
    from ...checks.junit import to_junit
    from ...checks.report import to_json
    from . import screen

    screen.failures(reports)
    screen.summary(reports, seconds)
    for option, path, text in (("--json", json, to_json), ("--junit", junit, to_junit)):
        if path is not None:
            write(path, option, text(reports))
