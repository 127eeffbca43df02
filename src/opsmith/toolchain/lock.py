"""One lock per cache key: held by the process that builds it, released by the kernel when that process dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

# Some network file systems have no locks. A build may then be done twice; the rename keeps the cache correct.
_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class KeyLock:
    """An exclusive lock between processes and threads, on a file that exists only while the lock is held."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.effective = False
        self._descriptor: int | None = None

    def try_acquire(self, label: str = "") -> bool:
        """Take the lock if it is free. ``effective`` is False afterwards where the file system has no locks."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS_HERE:
                self.effective, self._descriptor = False, descriptor
                return True
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK:
                return False
            raise
        if not self._is_current(descriptor):
            # The previous holder removed this file between our opening and locking it; a new one may be held already.
            os.close(descriptor)
            return False
        self.effective, self._descriptor = True, descriptor
        with contextlib.suppress(OSError):  # the holder is only shown to users: a full disk does not matter here
            os.truncate(descriptor, 0)
            facts = {"pid": os.getpid(), "host": socket.gethostname(), "label": label, "since": time.time()}
            os.write(descriptor, json.dumps(facts).encode())
        return True

    def release(self) -> None:
        """Release the lock. Its file is removed first, while we still hold it, so that it is never locked again."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        if self.effective:
            # Not by close() alone: a forked child may hold a copy of the descriptor, and with it the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = None

    def holder(self) -> str:
        """The holder, for the progress line: "process 4711 on node3"."""
        try:
            facts = json.loads(self.path.read_bytes())
            elsewhere = "" if facts["host"] == socket.gethostname() else f" on {facts['host']}"
            return f"process {facts['pid']}{elsewhere}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def _is_current(self, descriptor: int) -> bool:
        try:
            ours, current = os.fstat(descriptor), os.stat(self.path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (current.st_dev, current.st_ino)
