"""`opsmith bench`: ops beside eager PyTorch, torch.compile and their own other kernels, verified and then timed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..errors import OpsmithError
from ._bench_table import shown
from ._options import OPS, From, OnDevice
from ._screen import FAILED, RefusedError, errors, output, tell, writable, write
from ._selection import selected

if TYPE_CHECKING:
    from ..benchmark.results import Results, Row
    from ..operator.op import Op
    from ..operator.samples import Sample


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|MODULE|FILE.py]...", help=OPS, show_default=False),
    ] = None,
    device: OnDevice = None,
    dtype: Annotated[str | None, typer.Option(help="float32,bfloat16,...", show_default=False)] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", metavar="4096x1024", help="Of the first tensor; without, the op's samples.", show_default=False
        ),
    ] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="From 1 K to 1 G elements, as memory allows.")] = False,
    against: Annotated[
        str, typer.Option(help="eager, compile, compile-max, liger, or names of the op's kernels.")
    ] = "eager,compile",
    direction: Annotated[str, typer.Option(help="forward, backward, both.")] = "forward,backward",
    threads: Annotated[int, typer.Option(min=1, help="Of a CPU.")] = 2,
    profile: Annotated[
        bool, typer.Option("--profile", help="Tell which kernels each call runs, and how long each takes.")
    ] = False,
    cold: Annotated[bool, typer.Option("--cold", help="Time first calls, in new processes with empty caches.")] = False,
    sources: From = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows there.", show_default=False)] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rows of before: exit 1 where one is slower now.", show_default=False),
    ] = None,
) -> None:
    """Time ops beside what their users have, and say what share of the machine's limit each reaches."""
    from ..benchmark import Results, bench, regressions
    from ..benchmark import ceilings as limits
    from ..benchmark.cpu import pinned
    from ..benchmark.environment import environment
    from ..benchmark.results import key_of

    chosen = selected(names or [], sources or [], "bench")
    where = _device(device.value if device else None)
    dtypes = _dtypes(dtype, where)
    directions = _directions(direction)
    if json is not None:
        with contextlib.suppress(OSError):
            json.absolute().parent.mkdir(parents=True, exist_ok=True)
        writable(json, "--json")
    before = _loaded(compare) if compare is not None else None
    wanted = [_shape(text) for text in shapes or []]
    with pinned(threads) if where == "cpu" else pinned(_threads()), errors.status("the machine's ceilings"):
        found = limits.measure(where)
    everything, failed = Results(environment=environment(where, threads, found)), False

    def timed(op: Op, dtype: Any) -> Results:
        """The rows that there are: an op's own faults, its author's, torch's are told, and leave the others' times."""
        nonlocal failed
        rows: list[Row] = []
        try:
            samples = _samples(op, wanted, scaling, where, dtype)
            with errors.status(f"{op.name}, {str(dtype).removeprefix('torch.')}"):
                return bench(
                    op, device=where, dtype=dtype, samples=samples, against=_listed(against), direction=directions,
                    threads=threads, ceilings=found, on_row=rows.append,
                )  # fmt: skip
        except Exception as error:
            tell(error if isinstance(error, OpsmithError) else _failed(op, dtype, error))
            failed = True
            return Results(rows)

    for op in chosen:
        for each in dtypes:
            results = timed(op, each)
            if cold and results.rows:
                with errors.status(f"{op.name}, first calls"):
                    _first_calls(op, where, threads, bool(wanted or scaling), results)
            everything.rows += [row for row in results.rows if key_of(row) not in map(key_of, everything.rows)]
            everything.warnings += [text for text in results.warnings if text not in everything.warnings]
            if json is not None:
                write(json, "--json", everything.to_json())  # as it goes: the rest may be interrupted
            if results.rows:
                output.print(shown(results.rows, output))
                output.print()
                if profile:
                    with pinned(threads) if where == "cpu" else pinned(_threads()):
                        told = list(dict.fromkeys(row["direction"] for row in results.rows))
                        _profile(op, _samples(op, wanted, scaling, where, each), where, each, told)
    if before is not None and (slower := regressions(before, everything, _own(before, everything))):
        # A busy minute of the machine is no regression: what is slower is slower twice.
        again = {(change.row["op"], change.row["dtype"]) for change in slower}
        for op in chosen:
            for each in dtypes:
                if (op.name, str(each).removeprefix("torch.")) in again:
                    everything.keep_fastest(timed(op, each).rows)
        if json is not None:
            write(json, "--json", everything.to_json())
    for warning in everything.warnings:
        errors.print(Text.assemble(("note: ", "yellow"), warning), soft_wrap=True)
    if not everything.rows and not failed:
        errors.print(Text("Nothing was timed."))
        failed = True
    if before is not None and not _is_as_fast(before, everything, compare):
        failed = True
    if failed:
        raise typer.Exit(FAILED)


def _failed(op: Op, dtype: Any, error: Exception) -> Exception:
    """A foreign error, with what was being measured."""
    said = str(error).partition("\nException raised from")[0].strip() or "no message"  # where torch's own trace begins
    return RuntimeError(f"{op.name}, {str(dtype).removeprefix('torch.')}: {type(error).__name__}: {said}")


def _is_as_fast(before: Results, now: Results, name: Path | None) -> bool:
    """Says what has become slower: the op or one of its kernels, for a baseline's time is nobody's fault here."""
    from ..benchmark import regressions
    from ..benchmark.results import common_rows, missing

    if not now.rows:
        return False
    here, there = now.environment.get("device"), before.environment.get("device")
    if here != there:
        output.print(Text(f"{name} was measured on another machine ({there}): times there say nothing of times here."))
        return False
    if before.environment.get("torch") != now.environment.get("torch"):
        told = f"{name} was measured with torch {before.environment.get('torch')}, not {now.environment.get('torch')}"
        errors.print(Text.assemble(("note: ", "yellow"), told))
    own = _own(before, now)
    common, slower = common_rows(before, now, own), regressions(before, now, own)
    gone = missing(before, now, own)
    for row in gone:
        told = (
            f"  {row['op']} {row['sample']} {row['dtype']} {row['direction']} {row['contender']}: not measured any more"
        )
        output.print(Text(told, "red"), soft_wrap=True)
    output.print(Text(f"{common} rows compared with {name}, {len(slower)} slower"), soft_wrap=True)
    for change in slower:
        output.print(Text(f"  {change}", "red"), soft_wrap=True)
    if not common:
        output.print("Nothing was measured that is in both: the same ops, samples, dtypes and device are needed.")
    return bool(common) and not slower and not gone


def _own(before: Results, now: Results) -> set[str]:
    from ..benchmark.contenders import BASELINES

    return {row["contender"] for row in (*before.rows, *now.rows)} - {*BASELINES}


def _directions(text: str) -> list[str]:
    from ..benchmark.workload import DIRECTIONS

    given = _listed(text)
    if not given:
        raise RefusedError(f"--direction: give one or more of {', '.join(DIRECTIONS)}")
    for each in given:
        if each not in DIRECTIONS:
            raise RefusedError(f"--direction {each} is not one of {', '.join(DIRECTIONS)}")
    return given


def _shape(text: str) -> tuple[int, ...]:
    from ..benchmark.shapes import parsed

    try:
        return parsed(text)
    except ValueError as error:
        raise RefusedError(f"--shape: {error}. Give sizes with x between them, as 4096x1024, or 2^20.") from None


def _samples(op: Op, shapes: list[tuple[int, ...]], scaling: bool, device: str, dtype: Any) -> list[Sample] | None:
    from ..benchmark.shapes import SCALING, free_bytes, resized

    wanted = [*shapes]
    if scaling:
        most = free_bytes(device) // (16 * dtype.itemsize)  # arguments, results, gradients, of each contender
        wanted += [(size,) for size in SCALING if size <= most]
    return [resized(op, shape, device, dtype) for shape in dict.fromkeys(wanted)] if wanted else None


def _dtypes(text: str | None, device: str) -> list[Any]:
    import torch

    names = _listed(text) if text else ["float32", "bfloat16"] if device == "cuda" else ["float32"]
    for name in names:
        if not isinstance(getattr(torch, name, None), torch.dtype):
            raise RefusedError(f"--dtype {name} is none of torch's: float32, bfloat16, float16, float64")
    return [getattr(torch, name) for name in dict.fromkeys(names)]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _device(wanted: str | None) -> str:
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise RefusedError("--device cuda: torch sees no GPU here. `opsmith doctor` tells more.")
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _loaded(path: Path) -> Results:
    from ..benchmark import Results
    from ..errors import ResultsFileError

    try:
        return Results.load(path)
    except ResultsFileError as error:
        raise RefusedError(f"--compare: {error}") from error


def _first_calls(op: Op, device: str, threads: int, resized: bool, results: Results) -> None:
    """Told in the first row of each contender."""
    from ..benchmark.cold import first_call_seconds

    firsts: dict[str, Row] = {row["contender"]: row for row in reversed(results.rows)}
    for row in firsts.values():
        try:
            row["cold_s"] = first_call_seconds(op, row, device, threads, resized=resized)
        except RuntimeError as reason:
            results.warnings.append(f"{op.name} {row['contender']}: no first call in a new process: {reason}")


def _profile(op: Op, samples: list[Sample] | None, device: str, dtype: Any, directions: list[str]) -> None:
    from ..benchmark.profiling import kernels
    from ..benchmark.run import workloads

    for workload in workloads(op, device, dtype, samples)[:1]:
        for direction in directions:
            output.print(Text.assemble((op.name, "bold"), (f"  {workload.name}, {direction}: what runs", "dim")))
            table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
            for heading in ("kernel", "calls", "us", "share"):
                table.add_column(heading, justify="left" if heading == "kernel" else "right", overflow="fold")
            for kernel in kernels(workload, direction):
                table.add_row(Text(kernel.name), str(kernel.calls), f"{kernel.us:,.1f}", f"{kernel.share:.0%}")
            output.print(table)
            output.print()
