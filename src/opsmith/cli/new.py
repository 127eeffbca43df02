"""`opsmith new NAME`: a project around one op, or one more op for a package."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from .. import scaffold
from ..errors import ScaffoldNameError, ScaffoldPlaceError
from ._options import option
from ._screen import RefusedError, output, print_note, tilde

Kind = enum.Enum("Kind", {name: name for name in scaffold.KINDS}, type=str)  # type: ignore[misc]


def command(
    name: Annotated[str, typer.Argument(help="The package's name; inside a package, the op's.", show_default=False)],
    kind: Annotated[Kind, typer.Option(help="What the op's kernels are written in.")] = Kind.pointwise,  # type: ignore[valid-type]
    into: Annotated[Path | None, option(metavar="DIR", help="Where. Default: ./NAME, or the package around here.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files and write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over files of the same names.")] = False,
) -> None:
    """Write a project that turns a kernel into an operator; inside a package, one more op for it."""
    try:
        plan = scaffold.plan(name, kind.value, into, force=force)
        if not dry_run:
            scaffold.write(plan.root, plan.files)
    except (ScaffoldNameError, ScaffoldPlaceError) as error:
        raise RefusedError(str(error)) from error
    _print(plan, dry_run)


_PURPOSES = {
    "pyproject.toml": "package, extras, tools",
    "README.md": "",
    "ci.yml": "tests without a GPU, builds the wheel, publishes a tag",
    ".clangd": "headers for the editor",
    "op.py": "what it computes: reference, samples, cost, module",
    "kernel.cu": "CUDA kernels",
    "kernel.cpp": "C++ kernels",
    "kernel.py": "their launches",
    "bench.py": "how fast it is",
    "train.py": "a few training steps",
}


def _print(plan: scaffold.Plan, dry_run: bool) -> None:
    root = escape(_shown(plan.root))
    what = f"project [bold]{plan.package}[/]" if plan.is_project else f"op [bold]{plan.package}::{plan.op}[/]"
    output.print(f"[bold]Would write[/] the {what}, {len(plan.files)} files:" if dry_run else f"[green]✓[/] Wrote the {what}:")
    output.print()
    output.print(_tree(plan, root))
    output.print()
    for note in plan.notes:
        print_note(note)
    if dry_run:
        return
    output.print("Next:" , style="bold")
    for line, purpose in _commands(plan):
        output.print(Text.assemble("  ", (line, "cyan"), f"  # {purpose}"), soft_wrap=True)


def _shown(path: Path) -> str:
    """Relative to the current directory, if it is below."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else tilde(path)
