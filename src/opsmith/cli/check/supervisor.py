"""Runs a job in worker processes, with a new one after a crash, a hang or a GPU that no longer responds.

A kernel with a wild write may end the whole process. That is the failure of one item, and the others still run. Two
workers share the items of an op where there are two cores and no GPU to share. The next op begins when all of its items
are done, so that two ops that need much memory never run together.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from ...checks.report import Item, Report
from ...errors import OpsmithError
from .._screen import REFUSED, RefusedError
from .process import Process
from .worker import Job

TIMEOUT = 600.0  # seconds that one item may take
WORTHWHILE = 8  # another process is started per this many items: its start takes as long as some of them
TRACING = {"compile", "export", "fake", "forward_mode", "functional_transforms", "opcheck", "outputs_written", "vmap"}
"""Items that import torch's tracer, which takes two seconds: the first process runs them, the other one the rest."""
_POLL_SECONDS = 0.2
_GPU = "/dev/nvidiactl"  # without it there is no GPU; to ask torch takes seconds


@dataclass(frozen=True)
class Planned:
    """The reports, with all of their items unfinished."""

    reports: list[Report]


@dataclass(frozen=True)
class Began:
    report: Report
    item: str


@dataclass(frozen=True)
class Ended:
    """`item` is in its report now."""

    report: Report
    item: Item


@dataclass(frozen=True)
class Output:
    """Other output: of the op, its compilers or torch."""

    text: str


Event = Planned | Began | Ended | Output


def supervised(job: Job, timeout: float = TIMEOUT, workers: int | None = None) -> Generator[Event, None, None]:
    """The events as they happen. Closing the generator ends the workers. Raises RefusedError or OpsmithError.

    `workers`: how many at once; None: two if there are two cores and the tensors are on the CPU."""
    started = _Workers(job, timeout, workers)
    try:
        yield from started.run()
    finally:
        started.end()


class _Workers:
    """The worker processes, and the tasks that are left."""

    def __init__(self, job: Job, timeout: float, most: int | None) -> None:
        self._job = job
        self._timeout = timeout
        self._most = most
        self._processes: list[Process] = []
        self._queue: queue.SimpleQueue[tuple[Process, dict[str, Any] | str]] = queue.SimpleQueue()
        self._reports: list[Report] = []
        self._tasks: list[tuple[Report, str]] = []
        self._left: list[int] = []  # the numbers of the tasks that no process was given

    def run(self) -> Iterator[Event]:
        self._processes += [Process(self._job, self._queue) for _ in range(self._first())]
        while not self._reports or self._left or self._busy():
            yield from self._received(_POLL_SECONDS)
            for process in list(self._processes):
                if process.task is not None and not process.late and process.seconds() > self._timeout:
                    process.give_up()
                if not process.alive:
                    yield from self._ended(process)
            self._assign()

    def end(self) -> None:
        done = bool(self._reports) and not self._left and not self._busy()
        for process in self._processes:
            process.dismiss()
        for process in self._processes:
            process.end(wait=done)

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
        if not self._reports:
            return len(self._processes)
        if self._most is not None:
            return self._most
        return 1 if self._reports[0].device == "cuda" else min(2, len(os.sched_getaffinity(0)))

    def _received(self, seconds: float) -> Iterator[Event]:
        """Events from the messages that are there, and from one that arrives within this time."""
        with contextlib.suppress(queue.Empty):
            for _ in range(1 + self._queue.qsize()):
                yield from self._events(*self._queue.get(timeout=seconds))

    def _events(self, process: Process, message: dict[str, Any] | str) -> Iterator[Event]:
        if isinstance(message, str):
            yield Output(message)
        elif message["kind"] == "refused":
            raise (RefusedError if message["status"] == REFUSED else OpsmithError)(message["message"])
        elif message["kind"] == "plan":
            process.planned = True
            if not self._reports:
                self._reports = [Report(**facts) for facts in message["reports"]]
                self._tasks = [(report, item) for report in self._reports for item in report.unfinished]
                self._left = list(range(len(self._tasks)))
                yield Planned(self._reports)
        elif message["kind"] == "begin":
            process.again = message["again"]
            assert process.task is not None
            yield Began(*self._tasks[process.task])
        else:
            yield self._done(process, Item(**message["item"]))

    def _done(self, process: Process, item: Item) -> Ended:
        assert process.task is not None
        report, _ = self._tasks[process.task]
        process.task = None
        report.unfinished.remove(item.name)
        report.items.append(item)
        places = [name for each, name in self._tasks if each is report]
        report.items.sort(key=lambda each: places.index(each.name))
        return Ended(report, item)

    def _ended(self, process: Process) -> Iterator[Event]:
        """Removes a process that has ended, during a task or after one that broke its GPU."""
        process.end(wait=True)
        yield from self._received(0.0)
        self._processes.remove(process)
        ending = process.ending(self._timeout)
        if not self._reports:
            raise RefusedError(f"while the ops were imported, {ending}.")
        if not process.planned:
            raise RefusedError(f"while another process started, {ending}.")
        if process.task is not None:
            report, name = self._tasks[process.task]
            again = process.again or f"# opsmith check {report.op} --item {name}"
            yield self._done(process, Item(name, "failed", ending, again, process.seconds()))
