"""`opsmith new NAME`: a project around one op, or one more op for a package."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from .. import scaffold
from ..errors import ScaffoldNameError, ScaffoldPlaceError
from ..errors.base import plural
from ._options import Json, option
from ._screen import RefusedError, output, prepare_json, print_note, tilde, write_json

_PURPOSES = {
    "op.py": "what it computes: reference, samples, cost, module",
    "kernel.cu": "CUDA kernels",
    "kernel.cpp": "C++ kernels",
    "kernel.py": "kernels, and how they are launched",
    "gradient.py": "its gradient",
    "pyproject.toml": "package, extras, tools",
    "ci.yml": "tests without a GPU, builds the wheel, publishes tags",
    ".clangd": "headers for the editor",
    "bench.py": "how fast it is",
    "train.py": "a few training steps",
}
"""The purposes of files, where the name does not say it."""


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The package's name; inside a package, the op's.", show_default=False)
    ],
    kind: Annotated[
        Literal["pointwise", "rowwise", "op", "cuda", "extension", "triton", "numba"],
        typer.Option(help="Generated kernels, no kernel yet, or kernels in a language."),
    ] = "pointwise",
    into: Annotated[
        Path | None, option(metavar="DIR", help="Where to write. Default: ./NAME, or the package in this directory.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files and write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files of the same names.")] = False,
    json: Json = None,
) -> None:
    """Write a project that turns a kernel into an operator; inside a package, one more op for it."""
    prepare_json(json)
    try:
        plan = scaffold.plan(name, kind, into, force=force)
        replaced = [path for path in plan.files if (plan.root / path).exists()]
        if not dry_run:
            scaffold.write(plan.root, plan.files)
    except (ScaffoldNameError, ScaffoldPlaceError) as error:
        raise RefusedError(str(error)) from error
    _print(plan, replaced, dry_run)
    facts = {"package": plan.package, "op": plan.op, "kind": kind, "directory": str(plan.root)}
    write_json(json, {**facts, "written": not dry_run, "files": list(plan.files), "replaced": replaced})


def _print(plan: scaffold.Plan, replaced: list[str], dry_run: bool) -> None:
    what = f"the project {plan.package}" if plan.is_project else f"the op {plan.package}::{plan.op}"
    counted = plural(len(plan.files), "file")
    if dry_run:
        output.print(Text.assemble(("Would write ", "yellow"), (what, "bold"), f", {counted}:"))
    else:
        output.print(Text.assemble(("✓ ", "green"), (what[0].upper() + what[1:], "bold"), f", {counted}:"))
    output.print(Group("", _tree(plan, replaced), ""))
    for note in plan.notes:
        print_note(note)
    if not dry_run:
        output.print("Next:", style="bold")
        commands = _commands(plan)
        width = max(len(line) for line, _ in commands)
        for line, purpose in commands:
            output.print(Text.assemble("  ", (line.ljust(width), "cyan"), (f"   {purpose}", "dim")), soft_wrap=True)


def _commands(plan: scaffold.Plan) -> list[tuple[str, str]]:
    """What to run next, each with its purpose."""
    root = _shown(plan.root)
    enter = "" if root == "." else f"cd {shlex.quote(root)} && "
    if plan.is_project:
        return [
            (f"{enter}pip install -e '.[dev]'", "pure Python, no compiler needed"),
            ("pytest", "the checklist of the op; no GPU needed"),
            (f"opsmith bench {plan.package}", "how fast it is here"),
        ]
    return [
        (f"{enter}pytest tests/test_{plan.op}.py", "passes as generated: now write your own op"),
        (f"opsmith show {plan.package}::{plan.op} --from {plan.package}", "its parts: written, generated, derived"),
        (f"opsmith bench {plan.package}::{plan.op} --from {plan.package}", "how fast it is here"),
    ]


def _tree(plan: scaffold.Plan, replaced: list[str]) -> Tree:
    """The files, each with its purpose; a directory that contains only one other is on one line with it."""
    top = Tree(Text(f"{_shown(plan.root)}/", "bold"), guide_style="dim")
    _grow(top, plan, list(plan.files), "", set(replaced))
    return top


def _grow(tree: Tree, plan: scaffold.Plan, paths: list[str], below: str, replaced: set[str]) -> None:
    names = dict.fromkeys(path.removeprefix(below).partition("/")[0] for path in paths)
    folders = [name for name in names if below + name not in plan.files]
    for folder in folders:
        inside = [path for path in paths if path.startswith(f"{below}{folder}/")]
        common = os.path.commonpath([os.path.dirname(path) for path in inside])
        branch = tree.add(Text(f"{common.removeprefix(below)}/"))
        _grow(branch, plan, inside, f"{common}/", replaced)
    for name in (name for name in names if name not in folders):
        line = Text(name)
        if purpose := _PURPOSES.get(name):
            line.append(f"  {purpose}", "dim")
        if below + name in replaced:
            line.append("  replaced", "yellow")
        tree.add(line)


def _shown(path: Path) -> str:
    """Relative to the current directory, if it is below."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else tilde(path)
