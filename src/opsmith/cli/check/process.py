"""One worker process as its supervisor sees it: asked for tasks, listened to, ended, and mourned with a reason."""

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
from . import worker
from .job import Job

_GRACE_SECONDS = 2.0
_EXIT_SECONDS = 30.0
_LAST_WORDS = 1 << 16
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from opsmith.cli.check import worker; worker.main(*sys.argv[2:])"
)


class Process:
    """The process, with a pipe for the numbers of tasks, one of its messages, one of whatever else is written in it,
    and a file in memory that takes its stack when it dies."""

    def __init__(self, job: Job) -> None:
        self.planned = False
        """Whether it has said that it is ready."""
        self.task: int | None = None
        self.again = ""
        """The lines that run its task again."""
        self.late = False
        self._began = time.monotonic()
        self._unread = self._unsaid = self._words = b""
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
                start_new_session=True,  # Ctrl-C is for the supervisor, which ends this
                # Threads that spin while they wait take twice the time of the items, whose tensors are small.
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
        """Whether anything may still come. What it has left behind may hold its pipes open, and says nothing."""
        return bool(self.open) and self._process.poll() is None

    def ask(self, task: int) -> None:
        self.task, self._began = task, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has died, and is about to be found so
            os.write(self._numbers, f"{task}\n".encode())

    def rest(self) -> Iterator[dict[str, Any] | str]:
        """What is left to read of one that has ended."""
        for pipe in list(self.open):
            os.set_blocking(pipe, False)
            with contextlib.suppress(BlockingIOError):
                while pipe in self.open:
                    yield from self.read(pipe)

    def read(self, pipe: int) -> Iterator[dict[str, Any] | str]:
        """What has come: messages, or whole lines of what was written."""
        data = os.read(pipe, 1 << 16)
        if not data:
            self.open.discard(pipe)
        if pipe == self.messages:
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                yield json.loads(line)
            return
        self._words = (self._words + data)[-_LAST_WORDS:]
        whole, newline, self._unsaid = (self._unsaid + data).rpartition(b"\n")
        if not data and self._unsaid:
            whole, newline, self._unsaid = self._unsaid, b"\n", b""
        if newline:
            yield (whole + newline).decode(errors="replace")

    def seconds(self) -> float:
        """Since it was asked for its task."""
        return time.monotonic() - self._began

    def give_up(self) -> None:
        """It takes too long. Its stack is asked for, and then it is ended."""
        self.late = True
        self._process.send_signal(worker.WHERE_IT_IS)
        time.sleep(0.2)
        self._stop()

    def _stop(self) -> None:
        """Politely first, so that the worker can end the compilers it has started."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def dismiss(self) -> None:
        """There are no more tasks: an idle one ends by itself."""
        if self._numbers >= 0:
            os.close(self._numbers)
            self._numbers = -1

    def end(self, wait: bool) -> None:
        """Waits for its end, or brings it about; and closes what there is of it here."""
        self.dismiss()
        try:
            self._process.wait(_EXIT_SECONDS if wait else 0)
        except subprocess.TimeoutExpired:
            self._stop()
        self._place = innermost_line(os.pread(self._stack, _LAST_WORDS, 0).decode(errors="replace"))
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
        said = self._words.decode(errors="replace").strip().splitlines()
        return f"the process ended with status {status}" + (f": {said[-1]}" if said else "")
