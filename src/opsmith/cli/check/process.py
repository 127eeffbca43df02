"""One worker process as its supervisor sees it: it is given tasks, read from, and ended, with the reason of its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from ...checks.stacks import innermost_line
from ...operator import child_process
from .._processes import stop
from . import worker
from .worker import Job

_EXIT_SECONDS = 30.0
_KEPT_BYTES = 1 << 16
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from opsmith.cli.check import worker; worker.main(*sys.argv[2:])"
)


class Process:
    """The process, with pipes for the numbers of tasks, for its messages and for all other output, and a file in memory
    for its stack when it crashes."""

    def __init__(self, job: Job) -> None:
        self.planned = False
        """Whether it has sent its plan."""
        self.task: int | None = None
        self.again = ""
        """The code that runs its task again."""
        self.late = False
        self._began = time.monotonic()
        self._unread = self._partial = self._latest = b""
        self._stack = os.memfd_create("stack")
        numbers, self._numbers = os.pipe()
        self.messages, messages = os.pipe()
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
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.open = {self.messages, self._output.fileno()}
        """The pipes that can still be read."""

    @property
    def alive(self) -> bool:
        """Whether it can still send something. Its own children may keep the pipes open longer."""
        return bool(self.open) and self._process.poll() is None

    def give(self, task: int) -> None:
        self.task, self._began = task, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the supervisor is about to notice
            os.write(self._numbers, f"{task}\n".encode())

    def rest(self) -> Iterator[dict[str, Any] | str]:
        """The rest of the output of a process that has ended."""
        for pipe in list(self.open):
            os.set_blocking(pipe, False)
            with contextlib.suppress(BlockingIOError):
                while pipe in self.open:
                    yield from self.read(pipe)

    def read(self, pipe: int) -> Iterator[dict[str, Any] | str]:
        """What has arrived: messages, or whole lines of other output."""
        data = os.read(pipe, 1 << 16)
        if not data:
            self.open.discard(pipe)
        if pipe == self.messages:
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                yield json.loads(line)
            return
        self._latest = (self._latest + data)[-_KEPT_BYTES:]
        whole, newline, self._partial = (self._partial + data).rpartition(b"\n")
        if not data and self._partial:
            whole, newline, self._partial = self._partial, b"\n", b""
        if newline:
            yield (whole + newline).decode(errors="replace")

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
        """Waits for its end, or ends it, and closes its pipes."""
        self.dismiss()
        try:
            self._process.wait(_EXIT_SECONDS if wait else 0)
        except subprocess.TimeoutExpired:
            stop(self._process)
        self._place = innermost_line(os.pread(self._stack, _KEPT_BYTES, 0).decode(errors="replace"))
        self._output.close()
        os.close(self.messages)
        os.close(self._stack)

    def ending(self, timeout: float) -> str:
        """'the process was ended by SIGSEGV; Python was at mish.py:12, in launch', after `end`."""
        status = self._process.returncode
        if self.late:
            return f"did not end within {timeout:g} s{self._place}"
        if status < 0:
            return f"the process was ended by {signal.Signals(-status).name}{self._place}"
        lines = self._latest.decode(errors="replace").strip().splitlines()
        return f"the process ended with status {status}" + (f": {lines[-1]}" if lines else "")
