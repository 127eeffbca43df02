"""Build the ops, compare each with its reference, and time it against eager PyTorch and torch.compile."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ...benchmark import time_together
from ...benchmark.timing import synchronizer
from ...checks import Comparison, compare
from ...checks.outcome import first_line
from ...errors import ReferenceRunsWarning
from ...operator.op import Op
from ...operator.samples import Sample
from .._processes import variable
from .._screen import output

Times = dict[str, float]  # seconds per call of 'opsmith', 'eager' and 'compile'
WORKERS = 4
ROUNDS = 9
ROUND_SECONDS = 0.015

FIRST_COMPILED = ("polynomial", "scale_bias_relu", "mish", "swiglu")
"""The ops for torch.compile to begin with: operators to fuse, sums in the backward, exponentials."""


@dataclass
class Row:
    """One op in the table."""

    op: Op
    comparisons: list[Comparison]
    forward: Times = field(default_factory=dict)
    both: Times = field(default_factory=dict)
    no_compile: str = ""  # why there is no time of torch.compile

    @property
    def correct(self) -> bool:
        return all(self.comparisons)

    @property
    def share_of_allowed(self) -> float:
        """The largest error as a share of the allowed rounding error."""
        return max((each.error / each.allowed for each in self.comparisons if each.error), default=0.0)

    @property
    def facts(self) -> dict[str, Any]:
        """For --json; times are in seconds."""
        judged = {"op": self.op.name, "correct": self.correct, "share_of_allowed": self.share_of_allowed}
        return {**judged, "forward": self.forward, "both": self.both, "no_compile": self.no_compile}


def build(ops: Sequence[Op], device: str) -> str:
    """Builds the kernels. Returns why references run in their place; '' if they were built."""
    with (
        warnings.catch_warnings(record=True) as caught,
        variable("OPSMITH_QUIET", "1"),  # the toolchain's own progress line would disturb the bar
        _progress("Building") as progress,
        ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool,
    ):
        warnings.simplefilter("always")
        task = progress.add_task("", total=len(ops), current="")
        building = {pool.submit(_prepare, op, device): op for op in ops}
        for done in as_completed(building):
            done.result()
            progress.update(task, advance=1, current=building[done].name)
        progress.update(task, current="forward and backward of every op")
    reasons = [str(each.message) for each in caught if issubclass(each.category, ReferenceRunsWarning)]
    return reasons[0] if reasons else ""


def _prepare(op: Op, device: str) -> None:
    sample = timed_sample(op, device)
    op.prepare(*_with_gradients(sample.args), **sample.kwargs)


def measure(ops: Sequence[Op], device: str, compile_seconds: float) -> list[Row]:
    """A row for each op, in the given order."""
    compiler = Compiler(compile_seconds)
    rows: dict[str, Row] = {}
    with _progress("Checking and timing", transient=True) as progress:
        task = progress.add_task("", total=len(ops), current="")
        for op in sorted(ops, key=_compiled_late):

            def show(step: str, op: Op = op) -> None:
                progress.update(task, current=f"{op.__name__}: {step}")

            rows[op.name] = _row(op, device, compiler, show)
            progress.update(task, advance=1)
    return [rows[op.name] for op in ops]


def timed_sample(op: Op, device: str) -> Sample:
    """The op's largest sample."""
    return max(op.samples_for(device, torch.float32), key=elements)


def elements(sample: Sample) -> int:
    return max(value.numel() for value in sample.args if isinstance(value, torch.Tensor))


def _progress(title: str, *, transient: bool = False) -> Progress:
    return Progress(
        TextColumn(title),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>2}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[current]}"),
        console=output,
        transient=transient,
    )


def _with_gradients(args: Sequence[object]) -> list[object]:
    """The arguments, of which floating tensors require a gradient; classes and masks cannot."""
    return [value.detach().requires_grad_(value.is_floating_point()) if isinstance(value, torch.Tensor) else value
            for value in args]  # fmt: skip


def _compiled_late(op: Op) -> int:
    return FIRST_COMPILED.index(op.__name__) if op.__name__ in FIRST_COMPILED else len(FIRST_COMPILED)


def _row(op: Op, device: str, compiler: Compiler, show: Callable[[str], None]) -> Row:
    show("comparing with its reference")
    row = Row(op, compare(op, op.samples_for(device, torch.float32)[0]))
    large = timed_sample(op, device)
    args = list(large.args) if op._families.default.inplace else _with_gradients(large.args)
    show("torch.compile")
    compiled, row.no_compile = compiler.compiled(op, args)
    show("timing")
    functions: dict[str, Callable[..., Any]] = {"opsmith": op, "eager": op.reference}
    if compiled is not None:
        functions["compile"] = compiled
    row.forward = _timed({name: _bound(function, args) for name, function in functions.items()}, device)
    if not op._families.default.inplace:
        row.both = _timed({name: _with_backward(function, args) for name, function in functions.items()}, device)
    return row


def _timed(callables: dict[str, Callable[[], object]], device: str) -> Times:
    wait = synchronizer(device)
    found = time_together(callables, rounds=ROUNDS, round_seconds=ROUND_SECONDS, synchronize=wait)
    return {name: timing.median for name, timing in found.items()}


def _bound(function: Callable[..., Any], args: Sequence[object]) -> Callable[[], object]:
    return lambda: function(*args)


def _with_backward(function: Callable[..., Any], args: Sequence[object]) -> Callable[[], object]:
    leaves = [value for value in args if isinstance(value, torch.Tensor) and value.requires_grad]

    def results() -> list[torch.Tensor]:
        returned = function(*args)
        listed = returned if isinstance(returned, (tuple, list)) else [returned]
        return [result for result in listed if result.requires_grad]

    grads = [torch.ones_like(result) for result in results()]
    return lambda: torch.autograd.grad(results(), leaves, grads, allow_unused=True)


class Compiler:
    """torch.compile, within a time limit. The first op takes far longer than the rest: imports, headers."""

    def __init__(self, seconds: float) -> None:
        self._given = self._left = seconds
        self._last = 0.0
        self._refusal = "" if seconds > 0 else "--compile-seconds 0"

    def compiled(self, op: Op, args: Sequence[object]) -> tuple[Callable[..., Any] | None, str]:
        """The compiled reference, with its kernels built; or None and why."""
        if self._refusal or self._left < self._last:
            return None, self._refusal or f"its time limit of {self._given:.0f} s was reached (--compile-seconds)"
        started = time.perf_counter()
        try:
            function = _compiled(op, args)
        except Exception as error:  # whatever torch.compile lacks on this machine
            self._refusal = first_line(error)
            return None, self._refusal
        spent = time.perf_counter() - started
        # The time of the first one says nothing of the next.
        self._left, self._last = self._left - spent, spent if self._last else min(spent, 5.0)
        return function, ""


def _compiled(op: Op, args: Sequence[object]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function: Callable[..., Any] = torch.compile(op.reference, dynamic=False)
        function(*args)
        if not op._families.default.inplace:
            _with_backward(function, args)()
    return function
