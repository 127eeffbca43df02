"""Where files go: into a new project, or into the package of the project around a directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import ScaffoldPlaceError
from .names import PROJECT_DIRECTORIES

_DEPENDS = re.compile(r"""^[^#\n]*?(?:["']opsmith\s*[\[<>=!~;@"' ]|^opsmith\s*=)""", re.MULTILINE)
_NAME = re.compile(r"""^name\s*=\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True)
class Project:
    """A project with a package that depends on opsmith."""

    root: Path
    package: Path

    @property
    def settings(self) -> str:
        return (self.root / "pyproject.toml").read_text(encoding="utf-8", errors="replace")


def project_around(directory: Path) -> Project | None:
    """The project that the directory belongs to, if it depends on opsmith and has a package.

    Raises ScaffoldPlaceError if it has several, and the directory is in none of them."""
    directory = directory.resolve()
    root = next((each for each in (directory, *directory.parents) if (each / "pyproject.toml").is_file()), None)
    if root is None:
        return None
    text = (root / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    named = _NAME.search(text)
    name = re.sub(r"[-_.]+", "_", named[1]).lower() if named else ""
    if name == "opsmith" or not _DEPENDS.search(text):
        return None
    found = _packages(root / "src") or _packages(root)
    if not found:
        return None
    if len(found) > 1:
        around = [each for each in found if directory.is_relative_to(each)]
        found = around or [each for each in found if each.name.lower() == name] or found
    if len(found) > 1:
        names = ", ".join(str(each.relative_to(root)) for each in found)
        raise ScaffoldPlaceError(
            f"the project {root} has several packages: {names}. Choose the one to add the op to:  --into {found[0]}"
        )
    return Project(root, found[0])


def _packages(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    found = (init.parent for init in directory.glob("*/__init__.py"))
    return sorted(each for each in found if each.name not in PROJECT_DIRECTORIES and each.name.isidentifier())
