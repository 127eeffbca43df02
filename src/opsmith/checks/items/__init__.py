"""The checklist: one module per item.

An item is a module with a function `check(subject) -> str`. The module's name is the item's name; the first line of its
docstring says what holds when the item passes. `check` returns a short summary, or raises Failed or Skipped; any other
exception of the op is a failure too. To add an item, add its file. It may also have

    check_call(subject, case)    the check of one call: reproduces a Failed that has a case and no lines. Without it, a
                                 Failed without lines is reproduced by running the item again
    LEVEL = "full"               only checked at level "full"
    ON = ("cuda",)               the devices it is for; "emulated" is one
    ORDER = 10                   items run in this order, then by name
    CRASHES = True               it may crash the process: opsmith.check runs it in a child process

Modules that begin with an underscore hold what items share.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ..._lazy import import_by_name, lazy
from ...kernels import emulation
from ...operator.adopted import Adopted
from ...operator.op import Op
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._cases import arguments_of, lines_with_kernel

EVERYWHERE = ("cpu", "cuda")

# For reproductions, which name items as opsmith.checks.items.fork.
__getattr__, __dir__ = lazy(__name__, {})


@dataclass(frozen=True)
class CheckItem:
    name: str
    description: str
    check: Callable[[Subject], str]
    level: str
    on: tuple[str, ...]
    order: int
    crashes: bool = False

    def applies_at(self, place: str, level: str) -> bool:
        return place in self.on and (self.level == "quick" or level == "full")


@cache
def every_item() -> list[CheckItem]:
    """In the order in which they are run."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    return sorted((_item(name) for name in names), key=lambda item: (item.order, item.name))


def assert_holds(op: Op | Adopted, item: str, /, *args: Any, **kwargs: Any) -> None:
    """Raises AssertionError with the item's message unless the op passes the item's check of this one call, at level
    "full"."""
    values = tuple(op.signature.bind_call(args, kwargs))
    case = Case("this call", op.signature.arguments, values, ())
    device = "cuda" if any(tensor.is_cuda for tensor in case.every_tensor()) else "cpu"
    seed = emulation.state.settings.seed if emulation.state.active else None
    subject = Subject(op, device, "full", seed or 0, emulated=emulation.state.active)
    try:
        _module(item).check_call(subject, case)
    except Skipped:
        return
    except Failed as failed:
        raise AssertionError(failed.message) from failed


def _item(name: str) -> CheckItem:
    module = _module(name)
    return CheckItem(
        name,
        (module.__doc__ or "").strip().split("\n")[0],
        functools.partial(_check, module, name),
        getattr(module, "LEVEL", "quick"),
        tuple(getattr(module, "ON", EVERYWHERE)),
        getattr(module, "ORDER", 50),
        getattr(module, "CRASHES", False),
    )


def _module(name: str) -> ModuleType:
    return import_by_name(f"{__name__}.{name}")


def _check(module: ModuleType, name: str, subject: Subject) -> str:
    """The item's check, with a reproduction for failures of `check_call`."""
    try:
        summary: str = module.check(subject)
        return summary
    except Failed as failed:
        if failed.case is not None and not failed.lines and hasattr(module, "check_call"):
            failed.lines = (f"opsmith.checks.items.assert_holds(op, {name!r}, {arguments_of(failed.case)})",)
        failed.lines = tuple(lines_with_kernel(failed.kernel, failed.lines))
        raise
