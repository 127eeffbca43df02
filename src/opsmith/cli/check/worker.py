"""The process that runs items for `opsmith check`. An op may crash it; its supervisor survives.

It sends its plan, then runs the tasks whose numbers it reads from one pipe, one per line, and sends their beginning and
end on another, one JSON object per line. A task is one item of one run; a run is one op with one seed. Every process of
a job numbers the tasks alike.
"""

from __future__ import annotations

import ast
import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from ...errors import (
    CheckOptionError,
    NotAnOperatorError,
    OpsmithError,
    SamplesMissingError,
    SeveralOverloadsError,
)
from .._ops import load, selected
from .._screen import FAILED, REFUSED, RefusedError

if TYPE_CHECKING:
    from ...checks.items import CheckItem
    from ...checks.subject import Subject
    from ...operator.adopted import Adopted
    from ...operator.op import Op

PREFIX = "torch.ops."
WRITE_STACKS = signal.SIGUSR1  # makes the worker write the stack of each of its threads


@dataclass(frozen=True)
class Job:
    """What to check. `names` are ops, modules, files, or operators of torch.ops; none of them means every shipped op.
    `reference` and `samples` are 'FILE.py:FUNCTION' or 'MODULE:FUNCTION'. Each op is checked once per seed."""

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reference: str | None = None
    samples: str | None = None
    device: str | None = None
    emulate: bool = False
    level: Literal["quick", "full"] = "quick"
    seeds: tuple[int, ...] = (0,)
    items: tuple[str, ...] | None = None

    def text(self) -> str:
        return repr(asdict(self))

    @classmethod
    def read(cls, text: str) -> Job:
        return cls(**ast.literal_eval(text))


def main(job: str, commands: str, messages: str, stack: str) -> None:
    """`commands`, `messages` and `stack` are file descriptors."""
    faulthandler.enable(int(stack))
    faulthandler.register(WRITE_STACKS, int(stack))
    # As an exception, SIGTERM lets the toolchain end the compiler it waits for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
    for descriptor in (commands, messages, stack):
        os.set_inheritable(int(descriptor), False)
    with os.fdopen(int(commands)) as numbers, os.fdopen(int(messages), "w") as pipe:

        def send(kind: str, **facts: Any) -> None:
            print(json.dumps({"kind": kind, **facts}), file=pipe, flush=True)

        try:
            run(Job.read(job), map(int, numbers), send)
        except (OpsmithError, RefusedError) as error:
            send("refused", message=str(error), status=REFUSED if isinstance(error, RefusedError) else FAILED)
        except BrokenPipeError:
            sys.exit("the supervisor has gone")


def run(job: Job, numbers: Iterable[int], send: Callable[..., None]) -> None:
    """Sends the plan, then runs each task whose number arrives."""
    from ...checks.run import empty_report, gpu_error, items_at, lacks_samples, run_item, subject_of

    ops = chosen(job)
    if ops and all(map(lacks_samples, ops)):
        raise SamplesMissingError(ops[0].name, ops[0].reference)  # once, not for every item
    runs = [(op, seed) for op in ops for seed in job.seeds]

    def subject_at(position: int) -> Subject:
        op, seed = runs[position]
        return subject_of(op, device=job.device, level=job.level, seed=seed, emulate=job.emulate)

    tasks: list[tuple[int, CheckItem]] = []
    reports = []
    try:
        for position in range(len(runs)):
            subject = subject_at(position)
            items = items_at(subject.place, subject.level, job.items)
            tasks += [(position, item) for item in items]
            reports.append({**asdict(empty_report(subject)), "unfinished": [item.name for item in items]})
    except CheckOptionError as error:
        raise RefusedError(str(error)) from error
    send("plan", reports=reports)
    at = -1
    for number in numbers:
        position, item = tasks[number]
        if position != at:
            at, subject = position, subject_at(position)  # this frees the samples of the one before
        send("begin", again=subject.again(item.name))
        found = run_item(subject, item)
        send("end", item=asdict(found))
        if found.status == "failed" and gpu_error(subject):
            return  # the GPU works again in a new process


# --- The ops of a job -------------------------------------------------------------------------------------------------


def chosen(job: Job) -> list[Op | Adopted]:
    """The ops of a job, in the given order, each once. Raises RefusedError."""
    operators = [name for name in job.names if name.startswith(PREFIX)]
    if operators or job.reference or job.samples:
        return [_adopted(job, operators)]
    return list(selected(job.names, job.sources, "check"))


def _adopted(job: Job, operators: list[str]) -> Adopted:
    from ...operator.adopted import adopt

    if len(operators) != 1 or len(job.names) != 1:
        given = ", ".join(job.names) or "no operator"
        raise RefusedError(
            f"--reference and --samples go with one operator of torch.ops, and {given} was given. Use:\n"
            "  opsmith check torch.ops.NAMESPACE.NAME --reference FILE.py:FUNCTION"
        )
    if job.reference is None:
        raise RefusedError(
            f"{operators[0]} is checked against a PyTorch function that computes the same: add --reference "
            "FILE.py:FUNCTION"
        )
    libraries = [load(source).__name__ for source in job.sources]
    reference, reference_home = _function(job.reference, "--reference")
    samples, samples_home = _function(job.samples, "--samples") if job.samples else (None, None)
    try:
        adopted = adopt(_operator(operators[0], job.reference), reference, samples)
    except (NotAnOperatorError, SeveralOverloadsError) as error:
        raise RefusedError(str(error)) from error
    # The files that were given, which load the operator's library, not those where the functions were written.
    adopted.reference_home, adopted.samples_home = reference_home, samples_home
    adopted.libraries = libraries
    return adopted


def _operator(name: str, reference: str) -> Any:
    import torch

    try:
        return attrgetter(name.removeprefix(PREFIX))(torch.ops)
    except (AttributeError, RuntimeError) as error:
        raise RefusedError(
            f"torch has no operator {name}. Its library must be loaded first: import it in "
            f"{reference.rpartition(':')[0]}, or give its module or file by --from."
        ) from error


def _function(given: str, option: str) -> tuple[Any, tuple[str, str]]:
    source, _, name = given.rpartition(":")
    if not source:
        raise RefusedError(f"{option} {given}: give a file or a module and the function in it, FILE.py:FUNCTION")
    module = load(source)
    function = getattr(module, name, None)
    if function is None:
        raise RefusedError(f"{option} {given}: {source} has no function {name!r}.")
    if not callable(function):
        raise RefusedError(f"{option} {given}: {name!r} in {source} is not a function but {type(function).__name__}.")
    return function, (module.__name__, name)
