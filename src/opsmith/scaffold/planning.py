"""Plans what `opsmith new` writes, and where; nothing is written yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..errors import FilesExistError, ScaffoldPlaceError
from . import templates
from .names import check_op, check_package
from .places import Project, project_around


@dataclass(frozen=True)
class Plan:
    """The files to write below `root`."""

    root: Path
    kind: str
    package: str
    op: str
    files: dict[str, str]
    """The text of each by its path."""
    is_project: bool
    """Whether it is a whole project, and not one more op in a package."""
    notes: tuple[str, ...] = ()
    """What remains for the author to do by hand."""


def plan(name: str, kind: str = "pointwise", into: Path | None = None, *, force: bool = False) -> Plan:
    """What `opsmith new NAME` writes: an op for the package that `into`, or else the current directory, belongs to;
    outside a package a project in `into`, by default ./NAME.

    Raises ScaffoldNameError, ScaffoldPlaceError, and without `force` FilesExistError."""
    around = project_around(into or Path.cwd())
    made = _project(name, kind, into) if around is None else _addition(name, kind, around)
    _check_free(made, force)
    return made


def _project(name: str, kind: str, into: Path | None) -> Plan:
    root = (into or Path(name)).resolve()
    check_package(name, root)
    op = templates.example(kind)
    return Plan(root, kind, name, op, templates.rendered(kind, name, op, project=True), is_project=True)


def _addition(name: str, kind: str, around: Project) -> Plan:
    check_op(name, templates.names_in_use(kind))
    if name == around.package.name:
        raise ScaffoldPlaceError(f"{name} is the package; give its op another name.")
    source = f"src/{around.package.name}"
    place = around.package.relative_to(around.root).as_posix()
    files = templates.rendered(kind, around.package.name, name, project=False)
    files = {re.sub(f"^{source}(?=/)", place, path): text for path, text in files.items()}
    notes = []
    index = around.package / "ops" / "__init__.py"
    if not index.exists():
        path = f"{place}/ops/__init__.py"
        files[path] = templates.rendered(kind, around.package.name, name, project=True)[f"{source}/ops/__init__.py"]
        notes.append(f"Declare the ops when the package is imported: add `from . import ops` to {place}/__init__.py.")
    elif "iter_modules" not in index.read_text(encoding="utf-8", errors="replace"):
        notes.append(f"{place}/ops/__init__.py does not look for folders: import the op there, `from . import {name}`.")
    suffixes = {PurePosixPath(path).suffix for path in files} & {".cu", ".cpp", ".h"}
    for suffix in sorted(suffixes):
        if not re.search(rf"\*{re.escape(suffix)}\b", around.settings):
            notes.append(f'Put the kernel into the wheel: in pyproject.toml, package-data needs "ops/*/*{suffix}".')
    return Plan(around.root, kind, around.package.name, name, dict(sorted(files.items())), False, tuple(notes))


def _check_free(made: Plan, force: bool) -> None:
    for place in (made.root, *made.root.parents):
        if place.exists() and not place.is_dir():
            raise ScaffoldPlaceError(f"{place} is a file, and the project needs a directory. Give another:  --into DIR")
    if force:
        return
    if made.is_project:
        taken = sorted(each.name for each in made.root.iterdir()) if made.root.is_dir() else []
        taken = [name for name in taken if name != ".git"]  # a repository that was just made is empty
    else:
        taken = [path for path in made.files if (made.root / path).exists()]
    if taken:
        raise FilesExistError(made.root, taken, made.is_project)
