"""Run one tool to its end in its own process group, and leave none of its processes behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CompilerNotExecutableError

_running: set[int] = set()
"""Process groups to end if the interpreter exits while a background thread is still building."""


class Cancelled(Exception):
    """The batch that a tool belongs to was cancelled."""


class Batch:
    """Tools that are started by several threads and ended together."""

    def __init__(self) -> None:
        self.cancelled = False
        self._groups: set[int] = set()
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """End every tool of the batch; a tool that is started later is ended at once."""
        with self._lock:
            self.cancelled = True
            for pid in self._groups:
                _kill_group(pid)

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Tools that this thread runs inside belong to the batch."""
        _current.batch = self
        try:
            yield
        finally:
            _current.batch = None

    def _add(self, pid: int) -> None:
        with self._lock:
            self._groups.add(pid)
            if self.cancelled:
                _kill_group(pid)

    def _remove(self, pid: int) -> None:
        with self._lock:
            self._groups.discard(pid)


class _Current(threading.local):
    batch: Batch | None = None


_current = _Current()


def raise_if_cancelled() -> None:
    """For a thread of a batch that waits without running a tool."""
    if _current.batch is not None and _current.batch.cancelled:
        raise Cancelled


@dataclass(frozen=True)
class Outcome:
    """How a tool ended: its exit status (negative: the signal that ended it) and all its output."""

    status: int
    output: str

    @property
    def signal_name(self) -> str | None:
        """The signal that ended the tool; a shell wrapper reports that of its child as 128 + number."""
        number = -self.status if self.status < 0 else self.status - 128
        try:
            return signal.Signals(number).name
        except ValueError:
            return None


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Outcome:
    """Run ``command`` and return its outcome. Whatever interrupts the wait, the whole process group is killed first.

    Raises CompilerNotExecutableError when the kernel refuses to start it, subprocess.TimeoutExpired, and Cancelled.
    """
    batch = _current.batch
    # Output goes to memory: a daemon that the tool leaves behind (a compiler cache's) would keep a pipe open, and on a
    # full disk a file would lose the tool's own message about it.
    with os.fdopen(os.memfd_create("opsmith-tool-output"), "w+b") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CompilerNotExecutableError(command[0], command, f"cannot be started: {error.strerror}") from error
        _running.add(process.pid)
        try:
            if batch is not None:
                batch._add(process.pid)
            status = process.wait(timeout)
        except BaseException:
            _kill_group(process.pid)
            process.wait()
            raise
        finally:
            _running.discard(process.pid)
            if batch is not None:
                batch._remove(process.pid)
        if batch is not None and batch.cancelled:
            raise Cancelled
        output.seek(0)
        return Outcome(status, output.read().decode(errors="replace"))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _kill_all() -> None:
    for pid in list(_running):
        _kill_group(pid)


atexit.register(_kill_all)
# A forked child shares the list but not the processes: its exit must not end its parent's compilers.
os.register_at_fork(after_in_child=_running.clear)
