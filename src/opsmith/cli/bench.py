"""`opsmith bench`: ops beside eager PyTorch, torch.compile and their own other kernels, verified and then timed."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ._screen import FAILED, RefusedError, errors, output

if TYPE_CHECKING:
    from ..bench.results import Results, Row
    from ..op import Op
    from ..samples import Sample

BAR = 12


class Device(str, enum.Enum):
    cpu = "cpu"
    cuda = "cuda"


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|MODULE|FILE.py]...",
            help="Ops by name or by what declares them; without, every shipped op.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        Device | None, typer.Option(help="Where to run; without, the GPU where there is one.", show_default=False)
    ] = None,
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
    threads: Annotated[int, typer.Option(help="Of a CPU.")] = 2,
    profile: Annotated[
        bool, typer.Option("--profile", help="Tell which kernels each call runs, and how long each takes.")
    ] = False,
    cold: Annotated[bool, typer.Option("--cold", help="Time first calls, in new processes with empty caches.")] = False,
    sources: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="MODULE|FILE.py", help="What declares the named ops.", show_default=False),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows there.", show_default=False)] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rows of before: exit 1 where one is slower now.", show_default=False),
    ] = None,
) -> None:
    """Time ops beside what their users have, and say what share of the machine's limit each reaches."""
    from ..bench import Results, bench, regressions
    from ..bench import ceilings as limits
    from ..bench.cpu import pinned
    from ..bench.results import common_rows

    chosen = _ops(names or [], sources or [])
    where = device.value if device else _default_device()
    dtypes = _dtypes(dtype, where)
    directions = _listed(direction)
    before = _loaded(compare) if compare is not None else None
    with pinned(threads) if where == "cpu" else pinned(_threads()), errors.status("the machine's ceilings"):
        found = limits.measure(where)
    everything = Results()
    for op in chosen:
        for each in dtypes:
            samples = _samples(op, shapes or [], scaling, where, each)
            with errors.status(f"{op.name}, {each}"):
                results = bench(
                    op, device=where, dtype=each, samples=samples, against=_listed(against), direction=directions,
                    threads=threads, ceilings=found,
                )  # fmt: skip
            if cold and results.rows:
                with errors.status(f"{op.name}, first calls"):
                    _first_calls(op, where, results.rows)
            everything.rows += results.rows
            everything.environment = results.environment
            everything.warnings += [text for text in results.warnings if text not in everything.warnings]
            output.print(table(op, results.rows))
            if profile:
                _profile(op, samples, where, each, directions)
    for warning in everything.warnings:
        errors.print(Text.assemble(("note: ", "yellow"), warning), soft_wrap=True)
    if json is not None:
        everything.save(json)
    if before is not None:
        slower = regressions(before, everything)
        output.print(f"{common_rows(before, everything)} rows compared with {compare}, {len(slower)} slower")
        for change in slower:
            output.print(Text(f"  {change}", "red"), soft_wrap=True)
        if slower or not common_rows(before, everything):
            raise typer.Exit(FAILED)


def table(op: Op, rows: list[Row]) -> Table:
    """One op's rows: a line a size and direction, a column a contender, a bar for the share of the limit."""
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    shown = Table(
        title=op.name, title_justify="left", title_style="bold", header_style="dim", box=None, padding=(0, 2, 0, 0)
    )
    for heading in ("sample", "dtype", "direction"):
        shown.add_column(heading)
    for name in contenders:
        shown.add_column(f"{name}, us", justify="right")
    shown.add_column("of the limit", justify="left")
    for lines in _grouped(rows):
        own = lines[contenders[0]]
        times = [_time(lines.get(name), own) for name in contenders]
        shown.add_row(own["sample"], own["dtype"], own["direction"], *times, _share(own))
    return shown


def _grouped(rows: list[Row]) -> list[dict[str, Row]]:
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        groups.setdefault((row["sample"], row["dtype"], row["direction"]), {})[row["contender"]] = row
    return list(groups.values())


def _time(row: Row | None, own: Row) -> Text:
    if row is None:
        return Text("")
    text = Text(f"{row['us']:,.1f}")
    if row is not own:
        ratio, low, high = row["speedup"], row["speedup_low"], row["speedup_high"]
        style = "green" if low > 1 else "red" if high < 1 else "dim"
        text.append(f" {ratio:.2f}x", style)
    return text


def _share(row: Row) -> Text:
    share = row.get("share")
    if share is None:
        return Text("")
    filled = min(BAR, round(share * BAR))
    style = "green" if share >= 0.9 else "yellow" if share >= 0.6 else "red"
    return Text.assemble(("█" * filled, style), ("░" * (BAR - filled), "dim"), f" {share:.0%} {row['limit']}")


def _ops(names: list[str], sources: list[str]) -> list[Op]:
    from ._sources import declared, find, is_file, load

    if not names:
        return list(declared(sources).values())
    chosen: list[Op] = []
    for name in names:
        if is_file(name) or ("::" not in name and "." in name):
            before = set(declared(sources))
            load(name)
            chosen += [op for key, op in declared().items() if key not in before]
        else:
            chosen.append(find(name, sources, "bench"))
    return chosen


def _samples(op: Op, shapes: list[str], scaling: bool, device: str, dtype: Any) -> list[Sample] | None:
    from ..bench.shapes import SCALING, free_bytes, parsed, resized

    wanted = []
    for text in shapes:
        try:
            wanted.append(parsed(text))
        except ValueError:
            raise RefusedError(f"--shape {text}: give sizes with x between them, as 4096x1024, or 2^20") from None
    if scaling:
        most = free_bytes(device) // (16 * dtype.itemsize)  # arguments, results, gradients, of each contender
        wanted += [(size,) for size in SCALING if size <= most]
    return [resized(op, shape, device, dtype) for shape in wanted] if wanted else None


def _dtypes(text: str | None, device: str) -> list[Any]:
    import torch

    names = _listed(text) if text else ["float32", "bfloat16"] if device == "cuda" else ["float32"]
    for name in names:
        if not isinstance(getattr(torch, name, None), torch.dtype):
            raise RefusedError(f"--dtype {name} is none of torch's: float32, bfloat16, float16, float64")
    return [getattr(torch, name) for name in names]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _loaded(path: Path) -> Results:
    from ..bench import Results

    try:
        return Results.load(path)
    except (OSError, ValueError) as error:
        raise RefusedError(f"--compare {path}: {error}") from error


def _first_calls(op: Op, device: str, rows: list[Row]) -> None:
    from ..bench.cold import first_call_seconds

    for name in dict.fromkeys(row["contender"] for row in rows):
        seconds = first_call_seconds(op, name, device)
        for row in rows:
            if row["contender"] == name and row is next(r for r in rows if r["contender"] == name):
                row["cold_s"] = seconds


def _profile(op: Op, samples: list[Sample] | None, device: str, dtype: Any, directions: list[str]) -> None:
    from ..bench.profiling import kernels
    from ..bench.run import workloads

    for workload in workloads(op, device, dtype, samples)[:1]:
        for direction in directions:
            shown = Table(
                title=f"{op.name} {workload.name} {direction}: what runs",
                title_justify="left",
                box=None,
                header_style="dim",
            )
            for heading in ("kernel", "calls", "us", "share"):
                shown.add_column(heading, justify="left" if heading == "kernel" else "right")
            for kernel in kernels(workload, direction):
                shown.add_row(kernel.name, str(kernel.calls), f"{kernel.us:,.1f}", f"{kernel.share:.0%}")
            output.print(shown)
