"""The cache contract: the key of a build, where builds are stored, and what happens if they cannot be stored.

A key is made of what the author wrote and requested: sources, headers, flags, architecture, ABI level. The
versions of compiler and torch are provenance and not part of it, so that a machine without a compiler finds prebuilt
artifacts.

``obtain`` looks in the directories that ship inside packages, then in the cache directory; only then does it build.
Where the cache directory cannot be written (read-only, full), a CacheFallbackWarning is given once, and builds are kept
in this user's directory among the temporary files, which later processes find too; in one of this process alone if
another user has taken that name. A directory that another user can write raises CacheSecurityError.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import CacheError, CacheFallbackWarning, CacheSecurityError, DamagedPrebuiltWarning
from ..errors.base import warn
from .progress_line import progress
from .store import (
    Artifact,
    Build,
    DamagedEntry,
    Store,
    StoreUnwritable,
    Usage,
    refuse_if_others_can_write,
)

__all__ = ["Artifact", "Build", "Usage", "cache_directory", "cache_key", "clear", "obtain", "usage"]

PREBUILT = "prebuilt"
"""The directory of a package's prebuilt files, laid out like the cache; `opsmith build` fills it."""
OWN_PREBUILT = Path(__file__).parents[1] / PREBUILT
prebuilt_directories: list[Path] = [OWN_PREBUILT]
"""Searched before the cache, and never written to: opsmith's own, then those of the packages that declare ops."""
_searched = {"opsmith"}

_KEY_FORMAT = "opsmith-cache-1"

_fallback_lock = threading.Lock()
_fallback_reasons: dict[Path, str] = {}
"""Cache directories this process could not write to, and why; it does not try them again."""
_private: Store | None = None


def cache_directory() -> Path:
    """$OPSMITH_CACHE_DIR, else $XDG_CACHE_HOME/opsmith, else ~/.cache/opsmith; created with mode 0700.

    Raises CacheError if it cannot be created, and CacheSecurityError if another user can write it.
    """
    store = Store(_location())
    try:
        store.prepare()
    except OSError as error:
        raise CacheError(store.directory, error.strerror or str(error)) from error
    return store.directory


def cache_key(*, kind: str, sources: Mapping[str, str | bytes], flags: Sequence[str], arch: str, abi: str) -> str:
    """SHA-256 over every part, each preceded by its length, so that no two different builds have the same input."""
    contents = [part for name in sorted(sources) for part in (name, sources[name])]
    digest = hashlib.sha256()
    for parts in ([_KEY_FORMAT, kind, arch, abi], flags, contents):
        digest.update(b"%d;" % len(parts))
        for part in parts:
            encoded = part.encode() if isinstance(part, str) else part
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
    return digest.hexdigest()


def search_package_of(module: str) -> None:
    """From now on, the prebuilt files of the packages that a module belongs to are found."""
    for name in packages_of(module):
        if name in _searched:
            continue
        _searched.add(name)
        for place in prebuilt_of(name):
            if place.is_dir() and place not in prebuilt_directories:
                prebuilt_directories.append(place)


def ships_prebuilt(module: str) -> bool:
    """Whether a package that a module belongs to has prebuilt files."""
    return any(place.is_dir() for name in packages_of(module) for place in prebuilt_of(name))


def packages_of(module: str) -> list[str]:
    """["a", "a.b", "a.b.c"] of "a.b.c": any of them may have been built, such as one part of a namespace package."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def prebuilt_of(package: str) -> list[Path]:
    """Where the prebuilt files of an imported package are, if it has any."""
    return [Path(place, PREBUILT) for place in getattr(sys.modules.get(package), "__path__", ())]


def find_prebuilt(key: str, *, label: str, filenames: Sequence[str]) -> Artifact | None:
    """The artifact of ``key`` if a package ships it."""
    for directory in prebuilt_directories:
        store = Store(directory, trusted=True)
        try:
            if found := store.find(key, filenames):
                return found
        except DamagedEntry as damage:
            warnings.warn(DamagedPrebuiltWarning(store.artifacts / key, label, str(damage)), stacklevel=2)
    return None


def find(key: str, *, label: str, filenames: Sequence[str]) -> Artifact | None:
    """The artifact of ``key`` if it has been built: in a package, here, or in this process's private directory."""
    if found := find_prebuilt(key, label=label, filenames=filenames):
        return found
    for own in filter(None, (Store(_location()), _private or _user_store())):
        # A damaged entry is checked again, with a warning, by the process that rebuilds it under the lock.
        with contextlib.suppress(DamagedEntry):
            if found := own.find(key, filenames):
                return found
    return None


class NotBuilt(Exception):
    """Inside `looking_up`: there is no artifact."""


_only_looking = threading.local()


@contextlib.contextmanager
def looking_up() -> Iterator[None]:
    """Inside, `obtain` builds nothing in this thread: it raises NotBuilt."""
    _only_looking.active = True
    try:
        yield
    finally:
        _only_looking.active = False


def obtain(key: str, build: Build, *, label: str, filenames: Sequence[str]) -> Artifact:
    """The artifact of ``key``: found, or built by ``build(workdir)`` once, whichever processes want it.

    ``filenames`` are the files the build writes into its directory and the artifact keeps. They are compared with
    their recorded size and SHA-256 on every call: a damaged entry is never returned, but rebuilt with a
    CorruptCacheEntryWarning.
    """
    if found := find(key, label=label, filenames=filenames):
        return found
    if getattr(_only_looking, "active", False):
        raise NotBuilt
    store = Store(_location())
    with progress(label) as task:
        if store.directory not in _fallback_reasons:
            try:
                return store.obtain(key, build, label=label, filenames=filenames, progress=task)
            except StoreUnwritable as failure:
                _fall_back(store.directory, str(failure))
        try:
            return _private_store(store.directory).obtain(key, build, label=label, filenames=filenames, progress=task)
        except StoreUnwritable as failure:
            raise CacheError(store.directory, _fallback_reasons[store.directory], str(failure)) from failure


def usage() -> Usage:
    """Where the cache is, how many finished builds it holds, and all its bytes."""
    return Store(_location()).usage()


def clear() -> Usage:
    """Empty the cache and return how much that was. Entries that another process is building are left alone."""
    store = Store(_location())
    try:
        return store.clear()
    except OSError as error:
        raise CacheError(store.directory, error.strerror or str(error)) from error


def _location() -> Path:
    if chosen := os.environ.get("OPSMITH_CACHE_DIR"):
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification says to ignore relative ones
        return Path(xdg, "opsmith")
    home = os.path.expanduser("~")
    # A user without a home (an arbitrary uid in a container): writing here fails, with the warning or error for that.
    return Path(home if os.path.isabs(home) else "/", ".cache", "opsmith")


def _fall_back(directory: Path, reason: str) -> None:
    with _fallback_lock:
        if directory in _fallback_reasons:
            return
        _fallback_reasons[directory] = reason
    private = _private_store(directory)
    lasts = private.directory == _user_directory()
    warn(CacheFallbackWarning(directory, reason, private.directory, lasts))


def _private_store(directory: Path) -> Store:
    """This user's store among the temporary files; if there is none to be had, one of this process, which is created
    when first needed and removed when it exits."""
    global _private
    with _fallback_lock:
        if _private is None and (place := _user_directory()) is not None:
            with contextlib.suppress(OSError):
                place.mkdir(mode=0o700, exist_ok=True)
            _private = _user_store()
        if _private is None:
            try:
                temporary = Path(tempfile.mkdtemp(prefix="opsmith-"))
            except OSError as error:
                raise CacheError(directory, _fallback_reasons[directory], error.strerror or str(error)) from error
            atexit.register(_remove_if_ours, temporary, os.getpid())
            _private = Store(temporary)
        return _private


def _user_directory() -> Path | None:
    try:
        return Path(tempfile.gettempdir(), f"opsmith-{os.geteuid()}")
    except OSError:  # there is no directory for temporary files
        return None


def _user_store() -> Store | None:
    """The store in this user's directory. None if it is not there, or another user made it or can replace it."""
    place = _user_directory()
    try:
        status = os.lstat(place) if place is not None else None
    except OSError:
        return None
    if place is None or status is None or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return None
    try:
        refuse_if_others_can_write(place)
    except CacheSecurityError:
        return None
    return Store(place)


def _remove_if_ours(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs its parent's exit handlers too
        shutil.rmtree(directory, ignore_errors=True)
