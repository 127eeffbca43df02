"""The process that runs items for `opsmith check`: what an op does to it, its supervisor outlives.

It tells its plan, and then runs the tasks whose numbers it reads from one pipe, one a line, and tells of their
beginning and end by another, one JSON object a line. A task is one item of one run, a run is one op with one seed;
tasks are numbered through all runs, and every process of a job numbers them alike.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...errors import CheckOptionError, OpsmithError, SamplesMissingError
from .._screen import FAILED, REFUSED, RefusedError
from .job import Job

if TYPE_CHECKING:
    from ...checks.items import CheckItem
    from ...checks.subject import Subject

WHERE_IT_IS = signal.SIGUSR1
"""Makes the worker write the stack of each of its threads."""


def main(job: str, commands: str, messages: str, stack: str) -> None:
    """The last three are file descriptors."""
    faulthandler.enable(int(stack))
    faulthandler.register(WHERE_IT_IS, int(stack))
    # As an exception, SIGTERM lets the toolchain end the compiler it waits for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
    for descriptor in (commands, messages, stack):
        os.set_inheritable(int(descriptor), False)
    with os.fdopen(int(commands)) as numbers, os.fdopen(int(messages), "w") as pipe:

        def tell(kind: str, **facts: Any) -> None:
            print(json.dumps({"kind": kind, **facts}), file=pipe, flush=True)

        try:
            run(Job.read(job), map(int, numbers), tell)
        except (OpsmithError, RefusedError) as error:
            tell("refused", message=str(error), status=REFUSED if isinstance(error, RefusedError) else FAILED)
        except BrokenPipeError:
            sys.exit("the supervisor has gone")


def run(job: Job, numbers: Iterable[int], tell: Callable[..., None]) -> None:
    """The plan, then each task that is asked for."""
    from ...checks.run import empty_report, gpu_error, items_of, lacks_samples, run_item, subject_of
    from .subjects import chosen

    ops = chosen(job)
    if ops and all(map(lacks_samples, ops)):
        raise SamplesMissingError(ops[0].name)  # once, not for every item
    runs = [(op, seed) for op in ops for seed in job.seeds]

    def subject_at(position: int) -> Subject:
        op, seed = runs[position]
        return subject_of(op, device=job.device, level=job.level, seed=seed, emulate=job.emulate)

    tasks: list[tuple[int, CheckItem]] = []
    reports = []
    try:
        for position in range(len(runs)):
            subject = subject_at(position)
            items = items_of(subject, job.items)
            tasks += [(position, item) for item in items]
            reports.append({**asdict(empty_report(subject)), "unfinished": [item.name for item in items]})
    except CheckOptionError as error:
        raise RefusedError(str(error)) from error
    tell("plan", reports=reports)
    at = -1
    for number in numbers:
        position, item = tasks[number]
        if position != at:
            at, subject = position, subject_at(position)  # the samples of the one before go with it
        tell("begin", again=subject.again(item.name))
        found = run_item(subject, item)
        tell("end", item=asdict(found))
        if found.status == "failed" and gpu_error(subject):
            return  # the next process has a GPU that answers
