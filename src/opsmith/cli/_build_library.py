"""`opsmith build --library`: what the library holds, as a table, and where it loads."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.table import Table

from ..shipping.building import compilers_cache
from ..shipping.library import Contents, Library, build_library_of
from ..shipping.staging import staged_file
from ._screen import FAILED, RefusedError, output, print_note, progress_bar, size, tilde


def build(package: str, contents: Contents, targets: Sequence[str], namespace: str | None = None) -> Library:
    """The library of a package, in the cache."""
    with progress_bar() as progress:
        task = progress.add_task(f"Building the library of {package}", total=None)
        with compilers_cache():
            return build_library_of(
                package,
                contents,
                targets,
                namespace,
                lambda done, count: progress.update(task, completed=done, total=count),
            )


def show(path: Path, contents: Contents, library: Library) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("operator")
    table.add_column("kernels")
    for name, served in contents.served.items():
        table.add_row(name, "in the library" if served else "none: schema only")
    output.print(table)
    output.print(f"\n{tilde(path)}, {size(path.stat().st_size)}, {library.kernels} kernels", soft_wrap=True)
    for note in contents.notes:
        print_note(note)


def verify(path: Path, package: str, targets: Sequence[str]) -> None:
    """Builds the library again and compares every byte."""
    with built_again(package, targets, "--library", "--into") as directory:
        same = (directory / path.name).read_bytes() == path.read_bytes()
    if not same:
        output.print("[red]A second build of the library differs.[/]")
        raise typer.Exit(FAILED)
    output.print("[green]✓[/] built a second time: the same bytes")


@contextlib.contextmanager
def built_again(package: str, targets: Sequence[str], *options: str) -> Iterator[Path]:
    """The directory of a second build, made by a new process with an empty cache. The last of `options` takes it."""
    with tempfile.TemporaryDirectory(prefix="opsmith-verify-") as scratch:
        directory = Path(scratch, "again")
        choice = ["--arch", ",".join(targets)] if targets else ["--no-cuda"]
        command = [sys.executable, "-m", "opsmith.cli", "build", package, *choice, *options, str(directory)]
        # The Python tier: with an empty cache the process would also build the C++ runtime, in the background.
        environment = {**os.environ, "OPSMITH_CACHE_DIR": str(Path(scratch, "cache")), "OPSMITH_RUNTIME": "python"}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ran.returncode != 0:
            raise RefusedError(f"The second build failed.\n{ran.stderr}")
        yield directory


def placed(library: Path, directory: Path) -> Path:
    """A copy in a directory, whole or not at all."""
    place = directory / library.name
    with staged_file(place, 0o755) as scratch:
        shutil.copyfile(library, scratch)
    return place
