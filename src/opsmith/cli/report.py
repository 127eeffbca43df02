"""`opsmith report`: files of rows as one page that needs no network, and a summary in the terminal."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..errors.base import plural
from ._bench_table import bar
from ._options import Json
from ._screen import RefusedError, output, prepare_json, require_writable, size, tilde, write, write_json

if TYPE_CHECKING:
    from ..benchmark.report import Machine
    from ..benchmark.results import Row

BAR = 8


def command(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Files that `opsmith bench --json` wrote.")
    ],
    to: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write the page to this file.")] = Path(
        "report.html"
    ),
    json: Json = None,
) -> None:
    """Write a page of charts and tables from the rows of `opsmith bench`: one file that needs no network."""
    from ..benchmark import Results
    from ..benchmark.report import merged, page
    from ..errors import ResultsFileError

    if to.is_dir():
        raise RefusedError(f"-o {to} is a directory. Give the page's file: -o {to / 'report.html'}")
    if any(to.exists() and path.exists() and to.samefile(path) for path in results):
        raise RefusedError(f"-o {to} is one of the files to read, and would be overwritten.")
    prepare_json(json)
    require_writable(to, "-o")
    try:
        files = [(name, Results.load(path)) for path, name in zip(results, _names(results), strict=True)]
    except ResultsFileError as error:
        raise RefusedError(str(error)) from error
    text = page(files)
    write(to, "-o", text)
    machines = [machine for machine in merged(files) if machine.rows]
    for machine in machines:
        output.print(_summary(machine))
        output.print()
    count = sum(len(machine.rows) for machine in machines)
    output.print(Text(f"{tilde(to)}: {plural(count, 'row')}, {size(len(text.encode()))}"), soft_wrap=True)
    write_json(json, {"page": str(to), "machines": [{"name": each.name, "rows": each.rows} for each in machines]})


def _names(paths: list[Path]) -> list[str]:
    """Each file's name, with as many of its folders as the names need to differ."""
    for parts in range(1, 1 + max(len(path.absolute().parts) for path in paths)):
        names = [str(Path(*path.absolute().parts[-parts:])) for path in paths]
        if len({*names}) == len({path.absolute() for path in paths}):
            break
    return names


def _summary(machine: Machine) -> Group:
    """For each op, dtype and direction: the mean speedup over each other contender, and the share of the limit that the
    largest sample reaches."""
    from ..benchmark.contenders import OPSMITH
    from ..benchmark.report.figures import grouped, short_names

    short = short_names(machine.rows)
    others = [name for name in machine.contenders if name != OPSMITH]
    table = Table(header_style="dim", box=None, padding=(0, 2, 0, 0))
    table.add_column("op", overflow="fold")
    for heading in ("dtype", "direction"):
        table.add_column(heading, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of the limit", no_wrap=True)
    for (op, dtype, direction), rows in grouped(machine.rows, "op", "dtype", "direction").items():
        means = [_mean_speedup([row for row in rows if row["contender"] == name]) for name in others]
        share = _share_of_limit([row for row in rows if row["contender"] == OPSMITH])
        table.add_row(Text(short(op)), dtype, direction, *means, Text(share))
    return Group(Text.assemble((machine.name, "bold"), ("  opsmith, times as fast as", "dim")), table)


def _mean_speedup(rows: list[Row]) -> Text:
    from ..benchmark.report.numbers import positive, three

    found = [speedup for row in rows if (speedup := positive(row.get("speedup"))) is not None]
    if not found:
        return Text()
    mean = geometric_mean(found)
    return Text(f"{three(mean)}x", "green" if mean > 1 else "red")


def _share_of_limit(rows: list[Row]) -> str:
    from ..benchmark.report.numbers import positive

    known = [row for row in rows if positive(row.get("share")) is not None]
    if not known:
        return ""
    share = max(known, key=lambda row: positive(row.get("elements")) or 0.0)["share"]
    return f"{bar(share, BAR)} {share:4.0%}"
