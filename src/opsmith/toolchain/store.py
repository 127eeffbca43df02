"""A directory of finished builds: found without a lock, built once, and published whole by one rename.

    artifacts/<key>/           the files of a build, and provenance.json: its origin, size and SHA-256 of each file
    locks/<key>                locked by the process that builds this key
    work/<key>.<random>/       a build in progress; if its key is not locked, its builder is dead, and it is removed

An entry appears by rename(2) from work/, so it is whole or absent. When a builder dies the kernel releases its lock,
and the next builder to come by removes its directory from work/.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pwd
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CacheSecurityError, CorruptCacheEntryWarning
from ..errors.base import warn
from .lock import KeyLock
from .process import raise_if_cancelled
from .progress_line import Progress

Build = Callable[[Path], Mapping[str, object] | None]
"""Writes the artifact's files into the directory it is given; returns facts for provenance.json (compiler, command)."""

PROVENANCE = "provenance.json"
_POLL_SECONDS = 0.05
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PLACE_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


@dataclass(frozen=True)
class Artifact:
    """A finished, verified build."""

    directory: Path
    provenance: Mapping[str, Any]

    def path(self, filename: str) -> Path:
        return self.directory / filename


@dataclass(frozen=True)
class Usage:
    """How much a cache holds, or how much ``clear`` removed."""

    directory: Path
    entries: int
    bytes: int


class StoreUnwritable(Exception):
    """The store's directory cannot be written; the text is the reason. Callers fall back to another store."""


class DamagedEntry(Exception):
    """The files of an entry are not those that its build recorded; the text is the reason."""


class Store:
    """``trusted`` is for a directory inside the installed package: whoever can write it can write opsmith itself."""

    def __init__(self, directory: Path, *, trusted: bool = False) -> None:
        self.directory = directory
        self.trusted = trusted
        self.artifacts = directory / "artifacts"
        self.locks = directory / "locks"
        self.work = directory / "work"

    def find(self, key: str, filenames: Sequence[str]) -> Artifact | None:
        """The entry of ``key`` if there is one; raises DamagedEntry, and CacheSecurityError for the directory."""
        if not self.trusted:
            refuse_if_others_can_write(self.directory)
        entry = self.artifacts / key
        try:
            recorded = (entry / PROVENANCE).read_bytes()
        except OSError:
            return None
        try:
            provenance = json.loads(recorded)
            if not self.trusted and not all(map(written_by_us_alone, map(os.lstat, (entry, entry / PROVENANCE)))):
                raise DamagedEntry("another user can write it")
            for name in filenames:
                self._verify(entry / name, provenance["files"][name])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedEntry(f"{type(error).__name__}: {error}") from error
        return Artifact(entry, provenance)

    def obtain(self, key: str, build: Build, *, label: str, filenames: Sequence[str], progress: Progress) -> Artifact:
        """The entry of ``key``, built by this process unless another one builds it first.

        Raises StoreUnwritable where the directory is at fault, and whatever ``build`` raises; nothing stays behind.
        """
        with _writing():
            self.prepare()
        lock = KeyLock(self.locks / key)
        while not self._acquire(lock, label):
            progress.activity = f"waiting for {lock.holder()} to build {label}"
            time.sleep(_POLL_SECONDS)
            raise_if_cancelled()
            with contextlib.suppress(DamagedEntry):
                if found := self.find(key, filenames):
                    return found
        progress.activity = f"building {label}"
        damage: DamagedEntry | None = None
        try:
            try:
                if found := self.find(key, filenames):
                    return found
            except DamagedEntry as error:
                damage = error
            if lock.effective:
                self._sweep(own=key)
            artifact = self._build(key, build, label, filenames)
        finally:
            lock.release()
        if damage:
            # Only now, so that the entry is rebuilt even when warnings are turned into errors.
            warn(CorruptCacheEntryWarning(artifact.directory, label, str(damage)))
        return artifact

    def prepare(self) -> None:
        """Create the directory, readable by its owner alone, and refuse it if others can write it."""
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError as error:  # a plain "File exists" would puzzle: the file is where a directory should be
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error
        refuse_if_others_can_write(self.directory)
        for part in (self.artifacts, self.locks, self.work):
            part.mkdir(mode=0o700, exist_ok=True)

    def usage(self) -> Usage:
        return Usage(self.directory, sum(1 for _ in _children(self.artifacts)), _tree_bytes(self.directory))

    def clear(self) -> Usage:
        """Remove every entry that is not being built at this moment, and what dead builders left."""
        entries = size = 0
        if self.artifacts.is_dir():
            self.prepare()
            for entry in _children(self.artifacts):
                lock = KeyLock(self.locks / entry.name)
                if not lock.try_acquire("opsmith cache clear"):
                    continue
                try:
                    bytes_here = _tree_bytes(entry)
                    self._evict(entry)
                finally:
                    lock.release()
                entries, size = entries + 1, size + bytes_here
            self._sweep()
        return Usage(self.directory, entries, size)

    def _verify(self, path: Path, recorded: Mapping[str, Any]) -> None:
        status = os.stat(path, follow_symlinks=self.trusted)  # only installers of packages may use links
        if not stat.S_ISREG(status.st_mode):
            raise DamagedEntry(f"{path.name} is not a regular file")
        if not self.trusted and not written_by_us_alone(status):
            raise DamagedEntry(f"another user can write {path.name}")
        if status.st_size != recorded["size"]:
            raise DamagedEntry(f"{path.name} has {status.st_size} bytes, and had {recorded['size']} when it was built")
        if _sha256(path) != recorded["sha256"]:
            raise DamagedEntry(f"the contents of {path.name} have changed since it was built")

    def _acquire(self, lock: KeyLock, label: str) -> bool:
        with _writing():
            return lock.try_acquire(label)

    def _build(self, key: str, build: Build, label: str, filenames: Sequence[str]) -> Artifact:
        with _writing():
            work = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self.work))
        try:
            started = time.time()
            try:
                facts = build(work) or {}
            except OSError as error:
                if error.errno in _DISK_FULL:
                    raise StoreUnwritable(error.strerror or str(error)) from error
                raise
            kept = {name.partition("/")[0] for name in filenames}  # files, and directories of files
            missing = [name for name in filenames if not (work / name).is_file()]
            if missing:
                raise FileNotFoundError(f"the build of {label} wrote no {', '.join(missing)}")
            with _writing():
                for path in _children(work):
                    if path.name not in kept:
                        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
                provenance = {
                    "key": key,
                    "label": label,
                    "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
                    "seconds": round(time.time() - started, 3),
                    "torch": getattr(sys.modules.get("torch"), "__version__", None),
                    **facts,
                    "files": {name: _seal(work / name) for name in filenames},
                }
                (work / PROVENANCE).write_text(json.dumps(provenance, indent=1, default=str) + "\n")
                _seal(work / PROVENANCE)
                _sync(work)
                return self._publish(work, key, filenames) or Artifact(self.artifacts / key, provenance)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _publish(self, work: Path, key: str, filenames: Sequence[str]) -> Artifact | None:
        """Rename ``work`` to its entry; without locks another process may have been first: its entry is returned."""
        entry = self.artifacts / key
        try:
            os.rename(work, entry)
        except OSError as error:
            if error.errno not in _PLACE_TAKEN:
                raise
            with contextlib.suppress(DamagedEntry):
                if found := self.find(key, filenames):
                    return found
            self._evict(entry)
            os.rename(work, entry)
        _sync(self.artifacts)
        return None

    def _evict(self, entry: Path) -> None:
        """Remove an entry, out of sight first: a reader sees it whole or not at all."""
        doomed = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=self.work))
        os.rename(entry, doomed / entry.name)
        shutil.rmtree(doomed, ignore_errors=True)

    def _sweep(self, own: str | None = None) -> None:
        """Remove what dead builders left: everything in work/ and locks/ under a key that is not locked."""
        for key in {path.name.split(".")[0] for part in (self.work, self.locks) for path in _children(part)}:
            lock = None if key == own else KeyLock(self.locks / key)
            with contextlib.suppress(OSError):
                if lock is not None and not lock.try_acquire():
                    continue
                try:
                    if lock is None or lock.effective:
                        for path in self.work.glob(f"{key}.*"):
                            _remove_in_use(path)
                finally:
                    if lock is not None:
                        lock.release()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnwritable(error.strerror or str(error)) from error


def _remove_in_use(directory: Path) -> None:
    """Remove a directory that a compiler may still write to, having outlived its builder: a file that appears between
    the listing and the removal is removed by the next attempt."""
    for _ in range(5):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.01)


def _seal(path: Path) -> dict[str, object]:
    """Make a file durable and writable by its owner only; return what ``_verify`` compares it with."""
    status = path.stat()
    path.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
    _sync(path)
    return {"size": status.st_size, "sha256": _sha256(path)}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _tree_bytes(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


# --- whether another user could have written a cache: its contents are executed ---------------------------------------


def written_by_us_alone(status: os.stat_result) -> bool:
    """Whether only this user, or root (who can do anything to us in any case), may write this file or directory."""
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & _OTHERS_WRITE


def refuse_if_others_can_write(directory: Path) -> None:
    """Raise CacheSecurityError unless ``directory`` is safe to execute from; a directory that is not there is safe."""
    try:
        status = os.stat(directory)
    except OSError:
        return
    if status.st_uid not in (0, os.geteuid()):
        raise CacheSecurityError(
            directory,
            f"it belongs to {_user(status.st_uid)}, while this process runs as {_user(os.geteuid())}",
            "Set OPSMITH_CACHE_DIR to a directory of your own.",
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheSecurityError(
            directory,
            f"its mode {stat.S_IMODE(status.st_mode):04o} lets others write into it",
            f"If you trust what is in it:  chmod 700 {shlex.quote(str(directory))}",
        )
    # Anyone who may write a parent directory can replace this one while we use it; the sticky bit (/tmp) forbids that.
    # Groups do not count: many systems give each user their own group, and home directories mode 0775.
    for parent in directory.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheSecurityError(
                directory,
                f"the mode {stat.S_IMODE(mode):04o} of {parent} lets every user replace what is below it",
                f"Fix it:  chmod o-w {shlex.quote(str(parent))}  or set OPSMITH_CACHE_DIR to another directory.",
            )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
