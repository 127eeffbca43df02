"""Build what the demo needs of each op, several at a time, under one progress bar."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ...errors import ReferenceRunsWarning
from ...operator.op import Op
from ...operator.samples import Sample
from .._screen import output

WORKERS = 4


@dataclass(frozen=True)
class Built:
    """How long it took, and why the references run where nothing could be built."""

    seconds: float
    refusal: str = ""


def build(ops: Sequence[Op], device: str) -> Built:
    started = time.perf_counter()
    columns = (
        TextColumn("Building"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>2}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[current]}"),
    )
    with warnings.catch_warnings(record=True) as met, _quiet(), Progress(*columns, console=output) as progress:
        warnings.simplefilter("always")
        task = progress.add_task("", total=len(ops), current="")
        with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
            building = {pool.submit(_prepared, op, device): op for op in ops}
            for done in as_completed(building):
                done.result()
                progress.update(task, advance=1, current=building[done].name)
        progress.update(task, current="forward and backward of every op")
    refusals = [str(warning.message) for warning in met if issubclass(warning.category, ReferenceRunsWarning)]
    return Built(time.perf_counter() - started, refusals[0] if refusals else "")


def _prepared(op: Op, device: str) -> None:
    sample = timed_sample(op, device)
    op.prepare(*with_gradients(sample.args), **sample.kwargs)


def timed_sample(op: Op, device: str) -> Sample:
    """The op's largest sample: the one to time."""
    return max(op.samples_for(device, torch.float32), key=elements)


def elements(sample: Sample) -> int:
    return max(value.numel() for value in sample.args if isinstance(value, torch.Tensor))


def with_gradients(args: Sequence[object]) -> list[object]:
    return [value.detach().requires_grad_() if isinstance(value, torch.Tensor) else value for value in args]


@contextmanager
def _quiet() -> Iterator[None]:
    """The toolchain's own progress line gives way to the bar."""
    before = os.environ.get("OPSMITH_QUIET")
    os.environ["OPSMITH_QUIET"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OPSMITH_QUIET"]
        else:
            os.environ["OPSMITH_QUIET"] = before
