"""Ask each probe in a process of its own: a crash, a hang or a library's noise is then a finding and nothing worse."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import child
from .finding import Finding, Line, Probe

PACKAGES = Path(__file__).parents[3]
"""The directory opsmith is imported from."""
_AT_ONCE = 8
_POLL_SECONDS = 0.02
_GRACE_SECONDS = 2.0


def examine(probes: Sequence[Probe]) -> Iterator[Line]:
    """A line for each probe, in their order, each as soon as it and those before it are known."""
    waiting = list(enumerate(probes))
    running: dict[int, _Asked] = {}
    lines: dict[int, Line] = {}
    try:
        for number in range(len(probes)):
            while number not in lines:
                while waiting and len(running) < min(_AT_ONCE, os.cpu_count() or 1):
                    next_number, probe = waiting.pop(0)
                    try:
                        running[next_number] = _Asked(probe)
                    except OSError as error:  # no memory for another process, or no more of them allowed
                        lines[next_number] = Line.of(probe, Finding("broken", f"could not be asked: {error}"), 0.0)
                for each, asked in list(running.items()):
                    if line := asked.line():
                        lines[each] = line
                        del running[each]
                time.sleep(0 if number in lines else _POLL_SECONDS)
            yield lines[number]
    finally:
        for asked in running.values():
            asked.end()


class _Asked:
    """A probe's process, and the two files in memory that it writes: its answer, and whatever it says besides.

    In memory, since a machine whose disk is full wants a doctor too."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._answer = os.fdopen(os.memfd_create("answer"), "w+b")
        self._words = os.fdopen(os.memfd_create("words"), "w+b")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", child.__name__, probe.function, str(self._answer.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=subprocess.STDOUT,
            pass_fds=(self._answer.fileno(),),
            start_new_session=True,
            env=_environment(),
        )

    def line(self) -> Line | None:
        """The probe's line once it has answered, ended or used up its time; None before."""
        seconds = time.monotonic() - self._started
        if self._process.poll() is not None:
            return Line.of(self._probe, self._finding(self._process.returncode), seconds)
        if seconds > self._probe.seconds:
            self.end()
            late = Finding("broken", f"did not answer within {self._probe.seconds:g} s, and was ended")
            return Line.of(self._probe, late, seconds)
        return None

    def end(self) -> None:
        """Ends the process: politely first, so that it can end the compilers it has started."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _finding(self, status: int) -> Finding:
        self._answer.seek(0)
        try:
            return Finding(**json.loads(self._answer.read()))
        except (ValueError, TypeError):
            pass  # it ended before it had answered
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip().splitlines()
        ending = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return Finding("broken", f"{ending}: {words[-1]}" if words else ending)


def _environment() -> dict[str, str]:
    """The user's, in which the same opsmith is found and no build reports its progress."""
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPSMITH_QUIET": "1"}
