"""Runs the checklist over one op."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence

import torch

from ..errors import KernelFault, OpsmithError
from ..op import Op
from .adopted import Adopted
from .items import CheckItem, every_item
from .outcome import Failed, Skipped
from .report import Item, Report
from .subject import Level, Subject


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
    """Runs the whole checklist on an op and says, item by item, what holds.

    >>> report = opsmith.check(opsmith.ops.mish)
    >>> report.ok, report.failures

    Args:
        op: an Op, or what `opsmith.checks.adopt` makes of any operator of torch.ops.
        device: "cpu" or "cuda"; None: the GPU where there is one.
        level: "quick", some seconds an op, or "full".
        seed: of every random number.
        emulate: the op's CUDA kernels, on the CPU, inside of opsmith.emulate.
        items: the names of those to run, instead of all.
        on_item: called with each Item as it is done.
    """
    where = "cpu" if emulate else device or ("cuda" if torch.cuda.is_available() else "cpu")
    subject = Subject(op, where, level, seed, emulate)
    report = Report(subject.name, where, level, seed, emulate, [], environment(where))
    for each in chosen(items):
        if items is None and not each.applies_to(subject):
            continue
        report.items.append(run_item(subject, each))
        if on_item is not None:
            on_item(report.items[-1])
    return report


def chosen(names: Sequence[str] | None) -> list[CheckItem]:
    every = every_item()
    if names is None:
        return every
    known = {each.name: each for each in every}
    for name in names:
        if name not in known:
            raise ValueError(f"no item is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names]


def run_item(subject: Subject, item: CheckItem) -> Item:
    """One item, whatever the op does."""
    began = time.perf_counter()

    def told(status: str, message: str, reproduction: str = "") -> Item:
        return Item(item.name, status, message, reproduction, time.perf_counter() - began, item.description)  # type: ignore[arg-type]

    try:
        with subject.environment():
            return told("passed", item.check(subject))
    except Skipped as reason:
        return told("skipped", str(reason))
    except Failed as failed:
        return told("failed", failed.message, subject.reproduction(failed))
    except KernelFault as fault:
        return told("failed", str(fault), subject.again(item.name))
    except (OpsmithError, Exception) as error:
        return told("failed", f"{type(error).__name__}: {error}", subject.again(item.name))


def environment(device: str) -> dict[str, str]:
    found = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found
