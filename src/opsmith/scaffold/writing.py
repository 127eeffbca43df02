"""Writing the files: all of them or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import ScaffoldPlaceError


def write(root: Path, files: Mapping[str, str]) -> None:
    """Writes each text to its path below `root`, replacing a file that exists. An error leaves everything unchanged.

    They are written beside their place first, and moved when all are there."""
    root = root.absolute()
    existing = next(each for each in (root, *root.parents) if each.is_dir())
    try:
        staging = Path(tempfile.mkdtemp(prefix=".opsmith-new-", dir=existing))
    except OSError as error:
        raise ScaffoldPlaceError(f"{existing} cannot be written to: {error.strerror}.") from error
    try:
        for path, text in files.items():
            _create(staging / "new" / path, text)
        if root.exists():
            _move(root, files, staging)
        else:
            _move_whole(root, staging / "new")
    except OSError as error:
        raise ScaffoldPlaceError(f"{error.filename or root} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _create(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _move_whole(root: Path, written: Path) -> None:
    """In one step: a new directory is there with all its files, or not at all."""
    missing = [each for each in root.parents if not each.exists()]
    made: list[Path] = []
    try:
        for directory in reversed(missing):
            directory.mkdir()
            made.append(directory)
        os.rename(written, root)
    except BaseException:
        for directory in reversed(made):
            directory.rmdir()
        raise


def _move(root: Path, files: Mapping[str, str], staging: Path) -> None:
    made: list[Path] = []  # directories
    moved: list[Path] = []
    replaced: list[tuple[Path, Path]] = []  # a file that was there, and where it is kept
    try:
        for number, path in enumerate(files):
            target = root / path
            missing = [each for each in target.parents if not each.exists()]
            for directory in reversed(missing):
                directory.mkdir()
                made.append(directory)
            if target.exists():
                kept = staging / str(number)
                shutil.copy2(target, kept)
                replaced.append((target, kept))
            else:
                moved.append(target)
            os.replace(staging / "new" / path, target)
    except BaseException:
        for target in moved:
            target.unlink(missing_ok=True)
        for target, kept in replaced:
            os.replace(kept, target)
        for directory in reversed(made):
            directory.rmdir()
        raise
