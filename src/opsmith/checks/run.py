"""Runs the checklist over one op."""

from __future__ import annotations

import json
import platform
import re
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from .. import __version__
from .._lazy import import_by_name
from ..errors import CheckOptionError, NotAnOpError, OpsmithWarning, SamplesMissingError
from ..operator import child_process
from ..operator.adopted import Adopted
from ..operator.op import Op
from .isolation import in_fork, may_crash
from .items import CheckItem, every_item
from .outcome import Failed, Skipped, Uncovered
from .report import Item, Report
from .reproduction import in_new_process, installed
from .subject import Level, Subject

NO_GPU = "torch finds no CUDA device here; `opsmith doctor` says why. Emulated kernels need none"
_PACKAGE = Path(__file__).resolve().parents[1]
_forked = False
"""Whether this process has run an item in a child process."""


def check(
    op: Op | Adopted,
    *,
    device: str | None = None,
    level: Level = "quick",
    seed: int = 0,
    emulate: bool = False,
    items: Sequence[str] | None = None,
    on_item: Callable[[Item], None] | None = None,
) -> Report:
    """Runs the checklist on an op.

    >>> report = opsmith.check(opsmith.ops.mish)
    >>> report.ok, report.failures

    Items that can crash (torch.compile, and every item of an op with a C++ kernel) run in a child process; a crash is
    reported as a failure of the item.

    Args:
        op: an Op, or the result of `opsmith.checks.adopt` for any operator of torch.ops.
        device: "cpu" or "cuda"; None: the GPU if there is one.
        level: "quick", a few seconds per op, or "full".
        seed: the seed of all random numbers.
        emulate: run the op's CUDA kernels on the CPU, under opsmith.emulate.
        items: the names of the items to run; None: all.
        on_item: called with each Item when it is complete.

    Raises SamplesMissingError if the op has no samples.
    """
    if child_process.returns_at_once():
        return Report(op.name, device or "", level, seed, emulate, not_run=child_process.REASON)
    if items is None and lacks_samples(op):
        raise SamplesMissingError(op.name)
    subject = subject_of(op, device=device, level=level, seed=seed, emulate=emulate)
    report = empty_report(subject)
    lost = ""
    for each in items_at(subject.place, subject.level, items):
        item = (
            run_isolated(subject, each) if not lost else Item(each.name, "skipped", lost, description=each.description)
        )
        if item.status == "failed" and (error := gpu_error(subject)):
            lost = f"the GPU has not answered since {each.name} ({error}): start another process"
        report.items.append(item)
        if on_item is not None:
            on_item(item)
    return report


def lacks_samples(op: Op | Adopted) -> bool:
    """Whether an op has no samples. An adopted operator's samples are made from its schema."""
    return isinstance(op, Op) and op.samples is None


def place_of(device: str | None = None, emulate: bool = False) -> str:
    """One of "cpu", "cuda" and "emulated"; raises CheckOptionError for anything else."""
    if emulate and device not in (None, "cpu"):
        raise CheckOptionError(f"emulated kernels run on the CPU: leave device out, instead of {device!r}")
    if device not in (None, "cpu", "cuda"):
        raise CheckOptionError(f"device is 'cpu' or 'cuda', not {device!r}")
    return "emulated" if emulate else device or ("cuda" if torch.cuda.is_available() else "cpu")


def subject_of(
    op: Op | Adopted,
    *,
    device: str | None = None,
    level: Level = "quick",
    seed: int = 0,
    emulate: bool = False,
) -> Subject:
    """The op and the device to check it on; raises CheckOptionError if the device is not available."""
    if not isinstance(op, (Op, Adopted)):
        raise NotAnOpError(op)
    place = place_of(device, emulate)
    if place == "cuda" and not torch.cuda.is_available():
        raise CheckOptionError(NO_GPU)
    return Subject(op, "cpu" if place == "emulated" else place, level, seed, emulate)


def empty_report(subject: Subject) -> Report:
    about = {"opsmith": __version__, "torch": torch.__version__, "python": platform.python_version()}
    about["machine"] = torch.cuda.get_device_name() if subject.device == "cuda" else platform.machine()
    return Report(subject.name, subject.device, subject.level, subject.seed, subject.emulated, [], about)


def items_at(place: str, level: Level, names: Sequence[str] | None = None) -> list[CheckItem]:
    """The items for a place and level; or those with these names, in this order. Raises CheckOptionError for an unknown
    level or item."""
    if level not in ("quick", "full"):
        raise CheckOptionError(f"level is 'quick' or 'full', not {level!r}")
    every = every_item()
    if names is None:
        return [each for each in every if each.applies_at(place, level)]
    known = {each.name: each for each in every}
    for name in names:
        if name not in known:
            raise CheckOptionError(f"no item is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def run_isolated(subject: Subject, item: CheckItem) -> Item:
    """One item; in a child process where it may crash."""
    if not may_crash(subject, item):
        return run_item(subject, item)
    began = time.perf_counter()

    def ended(message: str) -> Item:
        return Item(
            item.name, "failed", message, subject.again(item.name), time.perf_counter() - began, item.description
        )

    if subject.device == "cpu" and not torch.cuda.is_initialized():
        global _forked
        if item.crashes or _forked:
            import_by_name("torch._dynamo")  # a second; derivatives need it too: once here instead of in every child
        _forked = True
        return in_fork(lambda: run_item(subject, item), ended)
    lines = [
        "import dataclasses, json",
        "from opsmith.checks import run, subject",
        f"under_check = subject.Subject(op, {subject.device!r}, {subject.level!r}, {subject.seed}, {subject.emulated})",
        f"item, = run.items_at({subject.place!r}, {subject.level!r}, [{item.name!r}])",
        "print(json.dumps(dataclasses.asdict(run.run_item(under_check, item))))",
    ]
    try:
        finished = in_new_process(subject, lines)
    except Skipped:  # no new process can import the op
        return run_item(subject, item)
    if finished.status != 0:
        return ended(f"the process: {finished.message}")
    return Item(**json.loads(finished.output.splitlines()[-1]))


def run_item(subject: Subject, item: CheckItem) -> Item:
    """One item; any exception of the op is a failure of the item."""
    began = time.perf_counter()
    found = _run(subject, item)
    return replace(found, seconds=time.perf_counter() - began)


def _run(subject: Subject, item: CheckItem) -> Item:
    ended = partial(Item, item.name, description=item.description)
    if subject.place not in item.on:
        return ended("skipped", f"is for {' and '.join(item.on)}, and this is {subject.place}")
    if subject.emulated and not subject.kernels:
        return ended("skipped", "it has no kernel for CUDA to emulate")
    devices = [torch.cuda.current_device()] if subject.device == "cuda" else []
    try:
        with torch.random.fork_rng(devices), subject.environment(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about generated calls, of no use to the author
            warnings.simplefilter("default", OpsmithWarning)
            found = item.check(subject)
            if subject.device == "cuda":
                torch.cuda.synchronize()  # reports a kernel's error now instead of in the next item
            return ended("passed", found)
    except Uncovered as reason:
        return ended("skipped", str(reason), uncovered=True)
    except Skipped as reason:
        return ended("skipped", str(reason))
    except Exception as error:
        failed = error if isinstance(error, Failed) else Failed(f"{type(error).__name__}: {error}{_where(error)}")
        raised = error.__cause__ if failed is error else error
        if full := short_of_memory(raised):
            return ended("skipped", full)
        again = subject.reproduction(failed) or subject.again(item.name)
        cause = "" if raised is None else f"{type(raised).__name__}: {raised}".strip()
        return ended("failed", failed.message, again, raised=cause)


def gpu_error(subject: Subject) -> str:
    """CUDA's message if a kernel destroyed its context, after which no call can succeed; else empty."""
    if subject.device != "cuda":
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return ""


def short_of_memory(error: BaseException | None) -> str:
    """A message if the GPU is full or too small; empty for another error, and for a request that no GPU can meet."""
    if not isinstance(error, torch.OutOfMemoryError) or "more than 1EB" in str(error):
        return ""
    sizes = [float(size) * 1024 ** "BKMGTP".index(unit) for size, unit in _SIZES.findall(str(error))[:2]]
    fits = len(sizes) < 2 or sizes[0] <= sizes[1]
    return f"the GPU does not have enough memory: {str(error).splitlines()[0]}" if fits else ""


_SIZES = re.compile(r"(?:Tried to allocate|total capacity of) ([\d.]+) ([BKMGTP])")


def _where(error: Exception) -> str:
    """' (mish.py:12)': the innermost line of a traceback outside installed packages, if there is one."""
    places = [_PACKAGE, *installed()]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and not any(place in file.resolve().parents for place in places):
            return f" ({file.name}:{frame.lineno})"
    return ""
