"""Directories and files that are replaced as a whole: the previous contents stay until the new ones are complete."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import BuildPlaceError, BuildPlaceUnwritableError
from ..toolchain.lock import KeyLock

_LOCK = "lock"
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def require_writable(directory: Path) -> None:
    """Raises BuildPlaceUnwritableError unless files can be put into a directory, which need not exist yet."""
    try:
        place = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        os.rmdir(tempfile.mkdtemp(prefix=".opsmith-", dir=place))
    except OSError as error:
        raise BuildPlaceUnwritableError(directory, error.strerror or str(error)) from error


@contextmanager
def staged(directory: Path, mark: str) -> Iterator[Path]:
    """A new directory, which replaces `directory` at the end. It is removed if the block fails; if the process is
    killed, the next build removes it. Raises BuildPlaceError for a directory that has files, but not the file `mark`,
    and BuildPlaceUnwritableError.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if (others := sorted(os.listdir(directory)) if directory.exists() else []) and mark not in others:
            raise BuildPlaceError(directory, others)
        _remove_left_by_killed(directory)
        staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        raise BuildPlaceUnwritableError(directory, error.strerror or str(error)) from error
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


@contextmanager
def staged_file(path: Path, mode: int) -> Iterator[Path]:
    """A new file, which replaces `path` at the end. It is removed if the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(descriptor)
    try:
        yield Path(name)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _remove_left_by_killed(directory: Path) -> None:
    """Removes the staging directories of builds that have not finished and no longer hold a lock."""
    for left in directory.parent.glob(f".{directory.name}-*"):
        lock = KeyLock(left / _LOCK)
        with suppress(OSError):
            if lock.try_acquire() and lock.effective:
                shutil.rmtree(left)
        lock.release()


def _replace(directory: Path, staging: Path) -> None:
    """Gives `directory` the contents of `staging`, and `staging` the previous ones if there are any."""
    if directory.exists():
        paths = [os.fsencode(staging), os.fsencode(directory)]
        if ctypes.CDLL(None).renameat2(_HERE, paths[0], _HERE, paths[1], _EXCHANGE) == 0:
            return
        shutil.rmtree(directory)  # NFS cannot exchange directories
    os.rename(staging, directory)
