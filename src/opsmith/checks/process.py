"""Python code in a new process with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..operator import child_process
from .outcome import Skipped
from .reproduction import not_importable, setup
from .subject import Subject

SECONDS = 240.0
READY = "the op is imported"


@dataclass(frozen=True)
class Finished:
    """`status` is the exit status, negative for a signal, None after a timeout."""

    status: int | None
    output: str
    errors: str
    limit: float = SECONDS

    @property
    def message(self) -> str:
        """Why it failed."""
        if self.status is None:
            return f"it has not ended after {self.limit:.0f} s"
        if self.status < 0:
            return f"it was ended by {signal.Signals(-self.status).name}"
        last = [line for line in self.errors.splitlines() if line.strip()]
        return last[-1] if last else f"it ended with status {self.status}"


def run(subject: Subject, lines: Sequence[str], before: Sequence[str] = (), seconds: float = SECONDS) -> Finished:
    """Runs `before`, the lines that bind `op` and `reference`, and `lines`. After a timeout, kills the process and its
    children. Raises Skipped if a new process cannot import the op."""
    if reason := not_importable(subject.op):
        raise Skipped(reason)
    text = "\n".join([*before, *setup(subject.op, in_child=True), f"print({READY!r}, flush=True)", *lines])
    environment = {**child_process.environment(), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # its own process group, so that its children are killed with it
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        return Finished(None, output, errors, seconds)
    finished = Finished(process.returncode, output, errors)
    if READY not in output:
        if "UnknownOpError" not in finished.message:
            raise Skipped(f"a new process cannot import it: {finished.message}")
        module = getattr(subject.op, "__module__", "")
        raise Skipped(f"importing {module} in a new process does not declare it: is it declared inside a function?")
    return finished
