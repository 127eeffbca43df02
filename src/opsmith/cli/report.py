"""`opsmith report`: files of rows as one page, which asks the network for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ._report_summary import summary
from ._screen import RefusedError, output, size, tilde, writable, write


def command(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Files that `opsmith bench --json` wrote.")
    ],
    to: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the page goes.")] = Path(
        "report.html"
    ),
) -> None:
    """Write a page of charts and tables from the rows of `opsmith bench`: one file, readable without a network."""
    from ..benchmark import Results
    from ..benchmark.report import merged, page
    from ..errors import ResultsFileError

    if to.is_dir():
        raise RefusedError(f"-o {to} is a directory. Give the page's file: -o {to / 'report.html'}")
    if not to.absolute().parent.is_dir():
        raise RefusedError(f"-o {to}: there is no directory {to.absolute().parent} to write it into.")
    if any(to.exists() and path.exists() and to.samefile(path) for path in results):
        raise RefusedError(f"-o {to} is one of the files to be read, and would be overwritten.")
    writable(to, "-o")
    files = []
    for path, name in zip(results, _names(results), strict=True):
        try:
            files.append((name, Results.load(path)))
        except ResultsFileError as error:
            raise RefusedError(str(error)) from error
    text = page(files)
    write(to, "-o", text)
    machines = [machine for machine in merged(files) if machine.rows]
    for machine in machines:
        output.print(summary(machine))
        output.print()
    count = sum(len(machine.rows) for machine in machines)
    output.print(Text(f"{tilde(to)}: {count} rows, {size(len(text.encode()))}"), soft_wrap=True)


def _names(paths: list[Path]) -> list[str]:
    """Each file's name, with as many of its folders as it takes to tell them apart."""
    for parts in range(1, 1 + max(len(path.absolute().parts) for path in paths)):
        names = [str(Path(*path.absolute().parts[-parts:])) for path in paths]
        if len({*names}) == len({path.absolute() for path in paths}):
            break
    return names
