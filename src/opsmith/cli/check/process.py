"""One worker process as its supervisor sees it: it is given tasks, read from, and ended, with the reason of its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ...checks.stacks import innermost_line
from ...operator import child_process
from .._processes import stop
from . import worker
from .worker import Job

_EXIT_SECONDS = 30.0
_LONGEST_STACK = 1 << 16
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from opsmith.cli import quick_imports; quick_imports(); "
    "from opsmith.cli.check import worker; worker.main(*sys.argv[2:])"
)


class Process:
    """The process, with pipes for the numbers of tasks and for its messages, and a file in memory for its stack when it
    crashes. Threads put its messages, and lines of its other output, into `events`."""

    def __init__(self, job: Job, events: SimpleQueue[tuple[Process, dict[str, Any] | str]]) -> None:
        self.planned = False  # whether it has sent its plan
        self.task: int | None = None
        self.again = ""  # the code that runs its task again
        self.late = False
        self._began = time.monotonic()
        self._events = events
        self._last_line = ""
        self._stack = os.memfd_create("stack")
        numbers, self._numbers = os.pipe()
        received, messages = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", _START, json.dumps(sys.path), job.text()]
                + [str(descriptor) for descriptor in (numbers, messages, self._stack)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(numbers, messages, self._stack),
                start_new_session=True,  # Ctrl-C goes to the supervisor, which ends this process
                # Spinning threads double the time of items, whose tensors are small.
                env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, child_process.VARIABLE: str(child_process.NEVER)},
            )
        finally:
            os.close(numbers)
            os.close(messages)
        self._readers = [
            Thread(target=self._read_messages, args=(received,), daemon=True),
            Thread(target=self._read_output, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def alive(self) -> bool:
        """Whether it can still send something. Its own children may keep the pipes open longer."""
        return self._process.poll() is None and any(reader.is_alive() for reader in self._readers)

    def give(self, task: int) -> None:
        self.task, self._began = task, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the supervisor is about to notice
            os.write(self._numbers, f"{task}\n".encode())

    def seconds(self) -> float:
        """Since it was given its task."""
        return time.monotonic() - self._began

    def give_up(self) -> None:
        """Ends a process that exceeds the time limit, after it has written its stacks."""
        self.late = True
        self._process.send_signal(worker.WRITE_STACKS)
        time.sleep(0.2)
        stop(self._process)

    def dismiss(self) -> None:
        """There are no more tasks: the process ends when it is idle."""
        if self._numbers >= 0:
            os.close(self._numbers)
            self._numbers = -1

    def end(self, wait: bool) -> None:
        """Waits for its end, or ends it, and reads the rest of its output."""
        self.dismiss()
        try:
            self._process.wait(_EXIT_SECONDS if wait else 0)
        except subprocess.TimeoutExpired:
            stop(self._process)
        for reader in self._readers:
            reader.join(1.0)
        self._place = innermost_line(os.pread(self._stack, _LONGEST_STACK, 0).decode(errors="replace"))
        os.close(self._stack)

    def ending(self, timeout: float) -> str:
        """'the process was ended by SIGSEGV; Python was at mish.py:12, in launch', after `end`."""
        status = self._process.returncode
        if self.late:
            return f"did not end within {timeout:g} s{self._place}"
        if status < 0:
            return f"the process was ended by {signal.Signals(-status).name}{self._place}"
        return f"the process ended with status {status}" + (f": {self._last_line}" if self._last_line else "")

    def _read_messages(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb") as messages:
            for line in messages:
                if line.endswith(b"\n"):  # otherwise it was killed while it wrote
                    self._events.put((self, json.loads(line)))

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                text = line.decode(errors="replace").rstrip("\n")
                self._last_line = text.strip() or self._last_line
                self._events.put((self, f"{text}\n"))
