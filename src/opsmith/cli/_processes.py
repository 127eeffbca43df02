"""Processes: their environment, how to stop one, and one that runs a verb and is watched.

`os._exit(0)` inside a kernel ends the process with status 0. A parent process knows that the verb did not complete.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

from ._screen import FAILED, errors

WATCHED_VERBS = ("bench", "demo")
"""Verbs that run a user's code in their own process. `opsmith check` has workers for that."""
_GRACE_SECONDS = 2.0
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}
_FROM_TERMINAL = 128  # si_code of a signal from the kernel: Ctrl-C, which every process of the terminal receives itself


@contextlib.contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Inside, an environment variable has this value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that leads its group: by SIGTERM first, so that it can end the compilers it has started."""
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_watched(verb: Callable[[], None]) -> None:
    """Calls `verb` in a forked process and ends with its exit status; with status 1 if it did not complete."""
    reading, writing = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(reading)
        try:
            verb()
        except SystemExit:
            os.write(writing, b".")
            raise
        os.write(writing, b".")
        return
    os.close(writing)
    status = _waited(child)
    completed = os.read(reading, 1) != b""
    os.close(reading)
    if status < 0:
        errors.print(f"error: the process was ended by {signal.Signals(-status).name}.", style="bold red")
        raise SystemExit(128 - status)
    if not completed and status == 0:
        errors.print(
            "error: the process ended early, with status 0, before the results were complete. An op or its samples "
            "call os._exit or end the program in another way.",
            style="bold red",
            soft_wrap=True,
        )
        raise SystemExit(FAILED)
    raise SystemExit(status)


def _waited(child: int) -> int:
    """Its exit status, negative for a signal. Signals from other processes are passed on to the child."""
    while True:
        received = signal.sigwaitinfo(_SIGNALS)
        if received.si_signo != signal.SIGCHLD:
            if received.si_code != _FROM_TERMINAL:
                os.kill(child, received.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
