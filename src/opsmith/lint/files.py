"""Which files of a directory are linted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hh", ".hpp", ".py")
_SKIPPED = {"build", "dist", "third_party", "node_modules", "site-packages", "__pycache__"}


def sources(paths: Iterable[Path]) -> list[Path]:
    """The files among the paths, and the sources below the directories among them; each once.

    Passed over in directories: what begins with a point, builds, virtual environments, others' code in third_party."""
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _below(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _below(directory: Path) -> list[Path]:
    found = []
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(folder, name)))
        found += [Path(folder, name) for name in sorted(files) if name.endswith(SUFFIXES) and name[0] != "."]
    return found


def _is_skipped(directory: Path) -> bool:
    return directory.name in _SKIPPED or directory.name.startswith(".") or (directory / "pyvenv.cfg").exists()
