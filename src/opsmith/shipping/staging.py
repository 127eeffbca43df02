"""A directory that is written as a whole: until everything is there, what was there before stays."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import BuildPlaceError
from ..toolchain.lock import KeyLock

_LOCK = "lock"
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


@contextmanager
def staged(directory: Path, mark: str) -> Iterator[Path]:
    """A new directory, which replaces that one at the end. Nothing is left of it if the block fails, and
    nothing after the next build if the process is killed. A directory of other files, without the file `mark`, is
    refused: BuildPlaceError."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    if (others := sorted(os.listdir(directory)) if directory.exists() else []) and mark not in others:
        raise BuildPlaceError(directory, others)
    _remove_left_by_killed(directory)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    lock = KeyLock(staging / _LOCK)
    try:
        lock.try_acquire(f"a build for {directory}")
        yield staging
        lock.release()
        staging.chmod(0o755)
        _replace(directory, staging)
    finally:
        lock.release()
        shutil.rmtree(staging, ignore_errors=True)


def _remove_left_by_killed(directory: Path) -> None:
    """The staging directories whose builds did not come to their end and hold no lock any more."""
    for left in directory.parent.glob(f".{directory.name}-*"):
        lock = KeyLock(left / _LOCK)
        with suppress(OSError):
            if lock.try_acquire() and lock.effective:
                shutil.rmtree(left)
        lock.release()


def _replace(directory: Path, staging: Path) -> None:
    """Gives `directory` the contents of `staging`, which then has the former ones, if there were any."""
    if directory.exists():
        paths = [os.fsencode(staging), os.fsencode(directory)]
        if ctypes.CDLL(None).renameat2(_HERE, paths[0], _HERE, paths[1], _EXCHANGE) == 0:
            return
        shutil.rmtree(directory)  # on NFS, which cannot exchange two
    os.rename(staging, directory)
