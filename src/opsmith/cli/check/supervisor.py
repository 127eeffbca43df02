"""Runs a job in worker processes, with a new one after a crash, a hang or a GPU that no longer responds.

A kernel with a wild write may end the whole process. That is the failure of one item, and the others still run. Two
workers share the items of an op where there are two cores and no GPU to share. The next op begins when all of its items
are done, so that two ops that need much memory never run together.
"""

from __future__ import annotations

import contextlib
import os
import queue
from typing import Any

from ...checks.report import Item, Report
from ...errors import OpsmithError
from .._screen import REFUSED, RefusedError
from .process import Process
from .screen import Display
from .worker import Job

TIMEOUT = 600.0  # seconds that one item may take
WORTHWHILE = 8  # another process is started per this many items: its start takes as long as some of them
TRACING = {"compile", "export", "fake", "forward_mode", "functional_transforms", "opcheck", "outputs_written", "vmap"}
"""Items that import torch's tracer, which takes two seconds: the first process runs them, the other one the rest."""
_POLL_SECONDS = 0.2
_GPU = "/dev/nvidiactl"  # without it there is no GPU; to ask torch takes seconds


class Supervisor:
    """The worker processes of a job, and the tasks that are left. `reports` are there from the plan on.

    `workers`: how many at once; None: two if there are two cores and the tensors are on the CPU."""

    def __init__(
        self, job: Job, display: Display | None = None, timeout: float = TIMEOUT, workers: int | None = None
    ) -> None:
        self.reports: list[Report] = []
        self._job = job
        self._display = display or Display()
        self._timeout = timeout
        self._most = workers
        self._processes: list[Process] = []
        self._queue: queue.SimpleQueue[tuple[Process, dict[str, Any] | str]] = queue.SimpleQueue()
        self._tasks: list[tuple[Report, str]] = []
        self._left: list[int] = []  # the numbers of the tasks that no process was given

    def run(self) -> list[Report]:
        """The finished reports. Shows items as they begin and end. Raises RefusedError or OpsmithError."""
        try:
            self._processes += [Process(self._job, self._queue) for _ in range(self._first())]
            while not self.reports or self._left or self._busy():
                self._receive(_POLL_SECONDS)
                for process in list(self._processes):
                    if process.task is not None and not process.late and process.seconds() > self._timeout:
                        process.give_up()
                    if not process.alive:
                        self._remove(process)
                self._assign()
        finally:
            done = bool(self.reports) and not self._left and not self._busy()
            for process in self._processes:
                process.dismiss()
            for process in self._processes:
                process.end(wait=done)
        return self.reports

    def _busy(self) -> list[Process]:
        return [process for process in self._processes if process.task is not None]

    def _assign(self) -> None:
        """Gives tasks to idle processes, and starts more processes if it is worthwhile."""
        wanted = min(self._at_once(), 1 + len(self._left) // WORTHWHILE) if self._left else 0
        while len(self._processes) < wanted:
            self._processes.append(Process(self._job, self._queue))
        for process in self._processes:
            if process.planned and process.task is None and (task := self._task_for(process)) is not None:
                self._left.remove(task)
                process.give(task)

    def _task_for(self, process: Process) -> int | None:
        """The next task of the current report; tasks that trace come first, and only to the first process."""
        at_work = [self._tasks[each.task][0] for each in self._busy() if each.task is not None]
        report = at_work[0] if at_work else self._tasks[self._left[0]][0] if self._left else None
        tasks = [task for task in self._left if self._tasks[task][0] is report]
        tracing = [task for task in tasks if self._tasks[task][1] in TRACING]
        others = [task for task in tasks if task not in tracing]
        return next(iter([*tracing, *others] if process is self._processes[0] else others), None)

    def _first(self) -> int:
        """How many to start before the plan is known: two for the whole checklist, unless it may run on the one GPU."""
        whole = self._job.items is None and self._most is None
        on_cpu = self._job.device == "cpu" or self._job.emulate or not os.path.exists(_GPU)
        return min(2, len(os.sched_getaffinity(0))) if whole and on_cpu else 1

    def _at_once(self) -> int:
        if not self.reports:
            return len(self._processes)
        if self._most is not None:
            return self._most
        return 1 if self.reports[0].device == "cuda" else min(2, len(os.sched_getaffinity(0)))

    def _receive(self, seconds: float) -> None:
        """Handles the messages that are there, and one that arrives within this time."""
        with contextlib.suppress(queue.Empty):
            for _ in range(1 + self._queue.qsize()):
                self._handle(*self._queue.get(timeout=seconds))

    def _handle(self, process: Process, message: dict[str, Any] | str) -> None:
        if isinstance(message, str):
            self._display.output(message)
        elif message["kind"] == "refused":
            raise (RefusedError if message["status"] == REFUSED else OpsmithError)(message["message"])
        elif message["kind"] == "plan":
            process.planned = True
            if not self.reports:
                self.reports = [Report(**facts) for facts in message["reports"]]
                self._tasks = [(report, item) for report in self.reports for item in report.unfinished]
                self._left = list(range(len(self._tasks)))
        elif message["kind"] == "begin":
            process.again = message["again"]
            assert process.task is not None
            self._display.began(*self._tasks[process.task])
        else:
            self._done(process, Item(**message["item"]))

    def _done(self, process: Process, item: Item) -> None:
        assert process.task is not None
        report, _ = self._tasks[process.task]
        process.task = None
        report.unfinished.remove(item.name)
        report.items.append(item)
        places = [name for each, name in self._tasks if each is report]
        report.items.sort(key=lambda each: places.index(each.name))
        self._display.ended(report, item)

    def _remove(self, process: Process) -> None:
        """Removes a process that has ended, during a task or after one that broke its GPU."""
        process.end(wait=True)
        self._receive(0.0)
        self._processes.remove(process)
        ending = process.ending(self._timeout)
        if not self.reports:
            raise RefusedError(f"while the ops were imported, {ending}.")
        if not process.planned:
            raise RefusedError(f"while another process started, {ending}.")
        if process.task is not None:
            report, name = self._tasks[process.task]
            again = process.again or f"# opsmith check {report.op} --item {name}"
            self._done(process, Item(name, "failed", ending, again, process.seconds()))
