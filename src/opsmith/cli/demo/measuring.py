"""Each op against its reference, and timed beside it and beside torch.compile of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ...benchmark import time_together
from ...benchmark.timing import synchronizer
from ...checks import Comparison, compare
from ...operator.op import Op
from .._screen import output
from .building import timed_sample, with_gradients

Times = dict[str, float]
"""Seconds a call, by who made it: 'opsmith', 'eager', 'compile'."""

ROUNDS = 9
ROUND_SECONDS = 0.015

FIRST_COMPILED = ("polynomial", "scale_bias_relu", "mish", "swiglu")
"""What torch.compile's time goes to before the rest: operators to fuse, sums in the backward, exponentials."""


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
        """The largest error as a share of what rounding explains."""
        return max((each.error / each.allowed for each in self.comparisons if each.error), default=0.0)


def measure(ops: Sequence[Op], device: str, compile_seconds: float) -> list[Row]:
    """A row an op, in the order given."""
    columns = (
        TextColumn("Checking and timing"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>2}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[current]}"),
    )
    compiler = Compiler(compile_seconds)
    rows: dict[str, Row] = {}
    with Progress(*columns, console=output, transient=True) as progress:
        task = progress.add_task("", total=len(ops), current="")
        for op in sorted(ops, key=_compiled_late):

            def tell(what: str, op: Op = op) -> None:
                progress.update(task, current=f"{op.__name__}: {what}")

            rows[op.name] = _row(op, device, compiler, tell)
            progress.update(task, advance=1)
    return [rows[op.name] for op in ops]


def _compiled_late(op: Op) -> int:
    return FIRST_COMPILED.index(op.__name__) if op.__name__ in FIRST_COMPILED else len(FIRST_COMPILED)


def _row(op: Op, device: str, compiler: Compiler, tell: Callable[[str], None]) -> Row:
    tell("beside its reference")
    row = Row(op, compare(op, op.samples_for(device, torch.float32)[0]))
    large = timed_sample(op, device)
    args = list(large.args) if op._families.default.inplace else with_gradients(large.args)
    tell("torch.compile")
    compiled, row.no_compile = compiler.compiled(op, args)
    tell("timing")
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
    leaves = [value for value in args if isinstance(value, torch.Tensor)]
    grad = torch.ones_like(function(*args))
    return lambda: torch.autograd.grad(function(*args), leaves, grad)


class Compiler:
    """torch.compile, for as long as it is given. The first op takes far longer than the rest: imports, headers."""

    def __init__(self, seconds: float) -> None:
        self._given = self._left = seconds
        self._last = 0.0
        self._refusal = "" if seconds > 0 else "none was asked for"

    def compiled(self, op: Op, args: Sequence[object]) -> tuple[Callable[..., Any] | None, str]:
        """The compiled reference, its kernels made; or None and why."""
        if self._refusal or self._left < self._last:
            return None, self._refusal or f"its {self._given:.0f} s were up (--compile-seconds)"
        started = time.perf_counter()
        try:
            function = _compiled(op, args)
        except Exception as error:  # whatever torch.compile lacks on this machine
            self._refusal = f"{type(error).__name__}: {_first_line(error)}"
            return None, self._refusal
        spent = time.perf_counter() - started
        # What the first costs says nothing of the next.
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


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
