"""Run each probe in a separate process, so that a crash, a hang or a library's output cannot break the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .._processes import stop
from . import child
from .finding import Finding, Line, Probe

PACKAGES = Path(__file__).parents[3]
"""The directory opsmith is imported from."""
_AT_ONCE = 8
_POLL_SECONDS = 0.02


def examine(probes: Sequence[Probe]) -> Iterator[Line]:
    """A line for each probe, in order, each as soon as it and those before it are known."""
    waiting = list(enumerate(probes))
    running: dict[int, _Running] = {}
    lines: dict[int, Line] = {}
    try:
        for number in range(len(probes)):
            while number not in lines:
                while waiting and len(running) < min(_AT_ONCE, os.cpu_count() or 1):
                    next_number, probe = waiting.pop(0)
                    try:
                        running[next_number] = _Running(probe)
                    except OSError as error:  # no memory for another process, or no more of them allowed
                        lines[next_number] = Line.of(probe, Finding("broken", f"could not be started: {error}"), 0.0)
                for position, each in list(running.items()):
                    if line := each.line():
                        lines[position] = line
                        del running[position]
                time.sleep(0 if number in lines else _POLL_SECONDS)
            yield lines[number]
    finally:
        for each in running.values():
            stop(each.process)


class _Running:
    """A probe's process, and the two files that it writes: its answer, and any other output.

    The files are in memory: doctor must also work where the disk is full."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._answer = os.fdopen(os.memfd_create("answer"), "w+b")
        self._output = os.fdopen(os.memfd_create("output"), "w+b")
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", child.__name__, probe.function, str(self._answer.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(self._answer.fileno(),),
            start_new_session=True,
            env=_environment(),
        )

    def line(self) -> Line | None:
        """The probe's line once it has answered, ended or used up its time; None before."""
        seconds = time.monotonic() - self._started
        if self.process.poll() is not None:
            return Line.of(self._probe, self._finding(self.process.returncode), seconds)
        if seconds > self._probe.seconds:
            stop(self.process)
            late = Finding("broken", f"did not answer within {self._probe.seconds:g} s, and was ended")
            return Line.of(self._probe, late, seconds)
        return None

    def _finding(self, status: int) -> Finding:
        self._answer.seek(0)
        try:
            return Finding(**json.loads(self._answer.read()))
        except (ValueError, TypeError):
            pass  # it ended without an answer
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        ending = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return Finding("broken", f"{ending}: {lines[-1]}" if lines else ending)


def _environment() -> dict[str, str]:
    """The user's, with this opsmith importable and without progress of builds."""
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPSMITH_QUIET": "1"}
