"""`opsmith bench`: ops against eager PyTorch, torch.compile and their own other kernels, verified and then timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from ..errors import OpsmithError
from ._bench_table import shown
from ._ops import selected
from ._options import From, Json, OnDevice, Ops, option, usable_device
from ._screen import FAILED, RefusedError, errors, is_stdout, output, prepare_json, print_error, print_note, write_json

if TYPE_CHECKING:
    from ..benchmark.results import Results, Row
    from ..operator.op import Op
    from ..operator.samples import Sample

Parsed = TypeVar("Parsed")


def command(
    names: Ops = None,
    device: OnDevice = None,
    dtype: Annotated[
        str | None, option(help="Dtypes, as float32,bfloat16. Default: float32, and bfloat16 on a GPU.")
    ] = None,
    shapes: Annotated[
        list[str] | None,
        option("--shape", metavar="4096x1024", help="Shape of the first tensor. Default: the op's samples."),
    ] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Run from 1 K to 1 G elements, as memory allows.")] = False,
    against: Annotated[
        str, typer.Option(help="Baselines: eager, compile, compile-max, liger, or names of the op's kernels.")
    ] = "eager,compile",
    direction: Annotated[str, typer.Option(help="Directions: forward, backward, both.")] = "forward,backward",
    threads: Annotated[int, typer.Option(min=1, help="Threads on a CPU.")] = 2,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show the kernels each call runs, and their times.")
    ] = False,
    cold: Annotated[bool, typer.Option("--cold", help="Time first calls, in new processes with empty caches.")] = False,
    sources: From = None,
    json: Json = None,
    compare: Annotated[
        Path | None, option(metavar="FILE", help="Compare with the rows of a file; exit with 1 if one is slower now.")
    ] = None,
) -> None:
    """Time ops against eager PyTorch and torch.compile, and show the share of the machine's limit that each reaches."""
    from ..benchmark.results import regressions
    from ..benchmark.run import directions
    from ..benchmark.shapes import parsed as shape

    prepare_json(json)
    ops = selected(names or (), sources or (), "bench")
    where = usable_device(device)
    run = _Run(
        where, _dtypes(dtype, where), [_parsed("--shape", shape, text) for text in shapes or ()], scaling, against,
        _parsed("--direction", directions, direction), threads, json,
    )  # fmt: skip
    before = _loaded(compare) if compare is not None else None
    run.begin()
    for op in ops:
        for each in run.dtypes:
            run.add(op, each, cold, profile)
    if before is not None and (slower := regressions(before, run.results, _own(before, run.results))):
        run.repeat(ops, {(change.row["op"], change.row["dtype"]) for change in slower})
    run.save(done=True)
    for warning in run.results.warnings:
        print_note(warning)
    if not run.results.rows and not run.failed:
        errors.print("Nothing was timed.")
        run.failed = True
    if before is not None and not _is_as_fast(before, run.results, compare):
        run.failed = True
    if run.failed:
        raise typer.Exit(FAILED)


@dataclass
class _Run:
    """What the options ask for, the rows so far, and whether an op failed."""

    device: str
    dtypes: Sequence[Any]
    shapes: Sequence[tuple[int, ...]]
    scaling: bool
    against: str
    directions: Sequence[str]
    threads: int
    json: Path | None
    failed: bool = False
    results: Results = field(init=False)

    def begin(self) -> None:
        """Measures the machine's ceilings."""
        from ..benchmark import Results, ceilings
        from ..benchmark.results import environment

        with self._pinned(), errors.status("the machine's ceilings"):
            self._ceilings = ceilings.measure(self.device)
        self.results = Results(environment=environment(self.device, self.threads, self._ceilings))

    def add(self, op: Op, dtype: Any, cold: bool, profile: bool) -> None:
        """Times an op in one dtype, and prints and saves the rows."""
        from ..benchmark.results import key_of

        found = self._timed(op, dtype)
        if cold and found.rows:
            with errors.status(f"{op.name}, first calls"):
                self._time_first_calls(op, found)
        known = {key_of(row) for row in self.results.rows}
        self.results.rows += [row for row in found.rows if key_of(row) not in known]
        self.results.warnings += [text for text in found.warnings if text not in self.results.warnings]
        self.save(done=False)  # the rest may be interrupted
        if found.rows:
            output.print(shown(found.rows, output))
            output.print()
            if profile:
                with self._pinned():
                    self._profile(op, dtype, list(dict.fromkeys(row["direction"] for row in found.rows)))

    def repeat(self, ops: Sequence[Op], slower: set[tuple[str, str]]) -> None:
        """Times ops again that were slower: a busy machine is not a regression."""
        for op in ops:
            for dtype in self.dtypes:
                if (op.name, _dtype_name(dtype)) in slower:
                    self.results.keep_fastest(self._timed(op, dtype).rows)

    def save(self, *, done: bool) -> None:
        if done or not is_stdout(self.json):
            write_json(self.json, self.results.as_dict())

    def _timed(self, op: Op, dtype: Any) -> Results:
        """The rows that could be measured. An error of an op is printed, and does not end the benchmark of others."""
        from ..benchmark import Results, bench

        rows: list[Row] = []
        try:
            samples = self._samples(op, dtype)
            with errors.status(f"{op.name}, {_dtype_name(dtype)}"):
                return bench(
                    op, device=self.device, dtype=dtype, samples=samples, against=self.against,
                    direction=self.directions, threads=self.threads, ceilings=self._ceilings, on_row=rows.append,
                )  # fmt: skip
        except Exception as error:
            print_error(error if isinstance(error, OpsmithError) else _with_context(op, dtype, error))
            self.failed = True
            return Results(rows)

    def _samples(self, op: Op, dtype: Any) -> list[Sample] | None:
        """Samples of the given shapes; None: the op's own."""
        from ..benchmark.shapes import SCALING, resized
        from ..checks.items.huge import free_bytes

        wanted = [*self.shapes]
        if self.scaling:
            most = free_bytes(self.device) // (16 * dtype.itemsize)  # arguments, results, gradients, of each contender
            wanted += [(size,) for size in SCALING if size <= most]
        return [resized(op, shape, self.device, dtype) for shape in dict.fromkeys(wanted)] if wanted else None

    def _pinned(self) -> AbstractContextManager[None]:
        from ..benchmark.cpu import pinned

        return pinned(self.threads if self.device == "cpu" else None)

    def _time_first_calls(self, op: Op, found: Results) -> None:
        """Adds them to the first row of each contender."""
        from ..benchmark.cold import first_call_seconds

        resized = bool(self.shapes or self.scaling)
        firsts: dict[str, Row] = {row["contender"]: row for row in reversed(found.rows)}
        for row in firsts.values():
            try:
                row["cold_s"] = first_call_seconds(op, row, self.device, self.threads, resized=resized)
            except RuntimeError as reason:
                found.warnings.append(f"{op.name} {row['contender']}: no first call in a new process: {reason}")

    def _profile(self, op: Op, dtype: Any, directions: Sequence[str]) -> None:
        from ..benchmark.profiling import kernels
        from ..benchmark.run import workloads

        for workload in workloads(op, self.device, dtype, self._samples(op, dtype))[:1]:
            for direction in directions:
                output.print(Text.assemble((op.name, "bold"), (f"  {workload.name}, {direction}: kernels", "dim")))
                table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
                for heading in ("kernel", "calls", "us", "share"):
                    table.add_column(heading, justify="left" if heading == "kernel" else "right", overflow="fold")
                for kernel in kernels(workload, direction):
                    table.add_row(Text(kernel.name), str(kernel.calls), f"{kernel.us:,.1f}", f"{kernel.share:.0%}")
                output.print(table)
                output.print()


def _with_context(op: Op, dtype: Any, error: Exception) -> Exception:
    """An error of the op or of torch, with what was being measured."""
    message = str(error).partition("\nException raised from")[0].strip() or "no message"  # without torch's C++ trace
    return RuntimeError(f"{op.name}, {_dtype_name(dtype)}: {type(error).__name__}: {message}")


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


# --- Options ----------------------------------------------------------------------------------------------------------


def _dtypes(text: str | None, device: str) -> list[Any]:
    import torch

    from ..benchmark.run import default_dtypes, listed

    if text is None:
        return [*default_dtypes(device)]
    names = listed(text)
    for name in names:
        if not isinstance(getattr(torch, name, None), torch.dtype):
            raise RefusedError(f"--dtype {name} is not a dtype of torch: float32, bfloat16, float16, float64")
    return [getattr(torch, name) for name in dict.fromkeys(names)]


def _parsed(flag: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ValueError as error:
        raise RefusedError(f"{flag}: {error}") from None


# --- Comparison with earlier rows -------------------------------------------------------------------------------------


def _loaded(path: Path) -> Results:
    from ..benchmark import Results
    from ..errors import ResultsFileError

    try:
        return Results.load(path)
    except ResultsFileError as error:
        raise RefusedError(f"--compare: {error}") from error


def _own(before: Results, now: Results) -> set[str]:
    """The op and its kernels: a slower baseline is not a fault of the op."""
    from ..benchmark.contenders import BASELINES

    return {row["contender"] for row in (*before.rows, *now.rows)} - {*BASELINES}


def _is_as_fast(before: Results, now: Results, name: Path | None) -> bool:
    """Prints which rows of the op and its kernels are slower or missing now."""
    from ..benchmark.results import common_rows, missing, regressions

    if not now.rows:
        return False
    here, there = now.environment.get("device"), before.environment.get("device")
    if here != there:
        output.print(Text(f"{name} was measured on another machine ({there}): the times cannot be compared."))
        return False
    versions = before.environment.get("torch"), now.environment.get("torch")
    if versions[0] != versions[1]:
        print_note(f"{name} was measured with torch {versions[0]}, not {versions[1]}")
    own = _own(before, now)
    common, slower, gone = common_rows(before, now, own), regressions(before, now, own), missing(before, now, own)
    for row in gone:
        cell = " ".join(str(row[key]) for key in ("op", "sample", "dtype", "direction", "contender"))
        output.print(Text(f"  {cell}: not measured any more", "red"), soft_wrap=True)
    output.print(Text(f"{common} rows compared with {name}, {len(slower)} slower"), soft_wrap=True)
    for change in slower:
        output.print(Text(f"  {change}", "red"), soft_wrap=True)
    if not common:
        output.print("No row is in both: the same ops, samples, dtypes and device are needed.")
    return bool(common) and not slower and not gone
