"""Run tools, one or several at once, each to its end in its own process group; leave none of their processes behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..errors import CompilerNotExecutableError

Result = TypeVar("Result")

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


def run_together(tasks: Sequence[Callable[[], Result]], jobs: int) -> list[Result]:
    """The tasks' results, in order; at most ``jobs`` of them run at a time.

    When a task fails, running tasks finish (their results are cached) and no other is started; the first failure is
    raised. When the wait itself is interrupted, running tools are killed first.
    """
    if len(tasks) == 1 or jobs == 1:
        return [task() for task in tasks]
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting = iter(range(len(tasks)))
    # Daemon threads that report to a queue: the interpreter would wait for those of a thread pool when it exits.
    done: queue.SimpleQueue[None] = queue.SimpleQueue()
    lock = threading.Lock()
    batch = Batch()

    def work() -> None:
        try:
            with batch.joined():
                while True:
                    with lock:
                        number = None if failures or batch.cancelled else next(waiting, None)
                    if number is None:
                        return
                    results[number] = tasks[number]()
        except Cancelled:
            pass
        except BaseException as failure:
            failures.append(failure)
        finally:
            done.put(None)

    threads = [threading.Thread(target=work, name="opsmith-build", daemon=True) for _ in range(min(jobs, len(tasks)))]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            _wait(done)
    except BaseException:
        batch.cancel()
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(tasks))]


def _wait(done: queue.SimpleQueue[None]) -> None:
    """Wait in short steps: a signal that arrives at the wrong moment, or in another thread, does not interrupt a wait,
    but is handled between two. (With one long wait, one Ctrl-C in thirty waited for the compilers to end.)"""
    while True:
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=0.1)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _kill_all() -> None:
    for pid in list(_running):
        _kill_group(pid)


atexit.register(_kill_all)
# A forked child shares the list but not the processes: its exit must not end its parent's compilers.
os.register_at_fork(after_in_child=_running.clear)
