"""A verb in a process of its own, so that an op that ends its process is noticed.

`os._exit(0)` inside a kernel ends the process with status 0. The process that started it knows that the verb had not
come to its end, and says so.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from ._screen import FAILED, errors

VERBS = ("bench", "demo")
"""Those that run a user's code. `opsmith check` has workers for that."""
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}
_FROM_TERMINAL = 128
"""si_code of a signal from the kernel: Ctrl-C, which every process of the terminal gets by itself."""


def run(verb: Callable[[], None]) -> None:
    """Calls `verb` in a forked process and ends with its exit status; with status 1 if it did not come to its end."""
    reading, writing = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(reading)
        try:
            verb()
        except SystemExit:
            _tell_end(writing)
            raise
        _tell_end(writing)
        return
    os.close(writing)
    status = _waited(child)
    came_to_its_end = os.read(reading, 1) != b""
    os.close(reading)
    if status < 0:
        errors.print(f"error: the process was ended by {signal.Signals(-status).name}.", style="bold red")
        raise SystemExit(128 - status)
    if not came_to_its_end and status == 0:
        errors.print(
            "error: the process ended early, with status 0, before the results were complete. An op or its samples "
            "call os._exit or end the program in another way.",
            style="bold red",
            soft_wrap=True,
        )
        raise SystemExit(FAILED)
    raise SystemExit(status)


def _tell_end(pipe: int) -> None:
    os.write(pipe, b".")
    os.close(pipe)


def _waited(child: int) -> int:
    """Its exit status, negative for the signal that ended it. Signals from other processes are passed on to it."""
    while True:
        received = signal.sigwaitinfo(_SIGNALS)
        if received.si_signo != signal.SIGCHLD:
            if received.si_code != _FROM_TERMINAL:
                os.kill(child, received.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
