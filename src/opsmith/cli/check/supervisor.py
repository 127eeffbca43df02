"""Runs a job in worker processes, with another one after a crash, a hang or a GPU that answers no more.

A kernel that writes where it should not may end the whole process. That is a finding about one item, and the others are
still to be looked at. Two workers share the items of an op, where there are two cores and no GPU to share; the next op
begins when all of them are done, so that two that need much memory never meet.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from ...checks.report import Item, Report
from ...errors import OpsmithError
from .._screen import REFUSED, RefusedError
from .job import Job
from .process import Process

TIMEOUT = 600.0
"""Seconds that one item may take."""
WORTHWHILE = 8
"""Items for which another process is started: it takes as long to be ready as some of them."""
TRACING = (
    "compile",
    "export",
    "fake",
    "forward_mode",
    "functional_transforms",
    "opcheck",
    "outputs_written",
    "vmap",
)
"""Items that import torch's tracer, which takes two seconds: one process does so, while the other does the rest."""
_POLL_SECONDS = 0.2
_GPU = "/dev/nvidiactl"  # where it is not, there is none: torch would take seconds to say so


@dataclass(frozen=True)
class Planned:
    """The reports to be, with all of their items unfinished."""

    reports: list[Report]


@dataclass(frozen=True)
class Began:
    report: Report
    item: str


@dataclass(frozen=True)
class Ended:
    """`item` is in its report by now."""

    report: Report
    item: Item


@dataclass(frozen=True)
class Said:
    """What the op, its compilers or torch wrote meanwhile."""

    text: str


Event = Planned | Began | Ended | Said


def supervised(job: Job, timeout: float = TIMEOUT, workers: int | None = None) -> Generator[Event, None, None]:
    """What happens, as it happens. Closing the generator ends the workers. Raises RefusedError or OpsmithError.

    `workers`: how many at once; None: two where there are two cores and the tensors are the CPU's."""
    crew = _Crew(job, timeout, workers)
    try:
        yield from crew.run()
    finally:
        crew.end()


class _Crew:
    """The processes, and what is left to do."""

    def __init__(self, job: Job, timeout: float, most: int | None) -> None:
        self._job = job
        self._timeout = timeout
        self._most = most
        self._processes: list[Process] = []
        self._reports: list[Report] = []
        self._tasks: list[tuple[Report, str]] = []
        self._left: list[int] = []
        """The numbers of the tasks that nobody was asked for."""

    def run(self) -> Iterator[Event]:
        self._processes += [Process(self._job) for _ in range(self._first())]
        while not self._reports or self._left or self._busy():
            yield from self._listened()
            for process in list(self._processes):
                if process.task is not None and not process.late and process.seconds() > self._timeout:
                    process.give_up()
                if not process.alive:
                    yield from self._buried(process)
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
        """Gives tasks to those who wait for one, and starts others to help them."""
        wanted = min(self._at_once(), 1 + len(self._left) // WORTHWHILE) if self._left else 0
        while len(self._processes) < wanted:
            self._processes.append(Process(self._job))
        for process in self._processes:
            if process.planned and process.task is None and (task := self._task_for(process)) is not None:
                self._left.remove(task)
                process.ask(task)

    def _task_for(self, process: Process) -> int | None:
        """Of the report that is being worked at; those that trace first, and for the first process alone."""
        at_work = [self._tasks[each.task][0] for each in self._busy() if each.task is not None]
        report = at_work[0] if at_work else self._tasks[self._left[0]][0] if self._left else None
        tasks = [task for task in self._left if self._tasks[task][0] is report]
        tracing = [task for task in tasks if self._tasks[task][1] in TRACING]
        others = [task for task in tasks if task not in tracing]
        return next(iter([*tracing, *others] if process is self._processes[0] else others), None)

    def _first(self) -> int:
        """How many are started before it is known what there is to do: the whole checklist is enough for two, unless
        it may be the one GPU's."""
        whole = self._job.items is None and self._most is None
        on_cpu = self._job.device == "cpu" or self._job.emulate or not os.path.exists(_GPU)
        return min(2, len(os.sched_getaffinity(0))) if whole and on_cpu else 1

    def _at_once(self) -> int:
        if not self._reports:
            return len(self._processes)
        if self._most is not None:
            return self._most
        return 1 if self._reports[0].device == "cuda" else min(2, len(os.sched_getaffinity(0)))

    def _listened(self) -> Iterator[Event]:
        """What the processes say within a moment."""
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                for pipe in process.open:
                    selector.register(pipe, selectors.EVENT_READ, process)
            for key, _ in selector.select(_POLL_SECONDS):
                for message in key.data.read(key.fd):
                    yield from self._told(key.data, message)

    def _told(self, process: Process, message: dict[str, Any] | str) -> Iterator[Event]:
        if isinstance(message, str):
            yield Said(message)
        elif message["kind"] == "refused":
            words = message["message"]
            raise RefusedError(words) if message["status"] == REFUSED else OpsmithError(words)
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

    def _buried(self, process: Process) -> Iterator[Event]:
        """One that has ended: in the midst of a task, or after one with which its GPU was lost."""
        for message in process.rest():
            yield from self._told(process, message)
        self._processes.remove(process)
        process.end(wait=True)
        ending = process.ending(self._timeout)
        if not self._reports:
            raise RefusedError(f"while what declares the ops was imported, {ending}.")
        if not process.planned:
            raise RefusedError(f"while another process was started, {ending}.")
        if process.task is not None:
            report, name = self._tasks[process.task]
            again = process.again or f"# opsmith check {report.op} --item {name}"
            yield self._done(process, Item(name, "failed", ending, again, process.seconds()))
