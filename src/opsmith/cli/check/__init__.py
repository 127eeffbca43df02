"""`opsmith check`: the whole checklist on ops, item by item; exit status 1 if an op is not ok."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._options import Device, From, Json, OnDevice, Ops, option
from .._screen import FAILED, RefusedError, prepare_json, require_writable, write

if TYPE_CHECKING:
    from ...checks.report import Report
    from .worker import Job

INTERRUPTED = 130  # the exit status that shells give after Ctrl-C


def command(
    names: Ops = None,
    device: OnDevice = None,
    emulate: Annotated[bool, typer.Option("--emulate", help="Run the CUDA kernels on the CPU.")] = False,
    full: Annotated[
        bool, option("--full/--quick", help="Check thoroughly, or in seconds per op. Default: --quick.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    items: Annotated[list[str] | None, option("--item", metavar="NAME", help="Run only this item.")] = None,
    sources: From = None,
    reference: Annotated[
        str | None,
        option(metavar="FILE.py:FUNCTION", help="Check an operator, torch.ops.NS.NAME, against this PyTorch function."),
    ] = None,
    samples: Annotated[
        str | None, option(metavar="FILE.py:FUNCTION", help="With --reference: yields the samples to run on.")
    ] = None,
    json: Json = None,
    junit: Annotated[Path | None, option(metavar="FILE", help="Write the result as JUnit XML, for CI systems.")] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of one item.")] = 600.0,
    jobs: Annotated[
        int | None, option(min=1, help="Processes to run at once. Default: 2 on the CPU, 1 on a GPU.")
    ] = None,
) -> None:
    """Check ops against their references: run the whole checklist and show how to reproduce each failure."""
    from .worker import Job

    if emulate and device is Device.cuda:
        raise RefusedError("--emulate runs CUDA kernels on the CPU: leave out --device cuda or --emulate.")
    prepare_json(json)
    if junit is not None:
        require_writable(junit, "--junit")
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
    """Runs and shows the job. Returns the reports, and whether it was interrupted."""
    from . import screen
    from .supervisor import Supervisor

    with screen.shown() as display:
        supervisor = Supervisor(job, display, timeout, jobs)
        try:
            return supervisor.run(), False
        except KeyboardInterrupt:
            return supervisor.reports, True


def _close(reports: list[Report], seconds: float, json: Path | None, junit: Path | None) -> None:
    from ...checks.junit import to_junit
    from ...checks.report import to_json
    from . import screen

    screen.failures(reports)
    screen.summary(reports, seconds)
    for flag, path, text in (("--json", json, to_json), ("--junit", junit, to_junit)):
        if path is not None:
            write(path, flag, text(reports))
