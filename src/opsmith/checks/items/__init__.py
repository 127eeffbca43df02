"""The checklist: one module per item.

An item is a module with a function `check(subject) -> str`; the module's name is the item's, the first line of its
docstring says what holds when it passes. `check` returns a short summary, raises Failed with arguments and
lines that show the fault, or Skipped with the reason. Any other exception of the op is a failure too. Adding an item is
adding that file. It may also have

    LEVEL = "full"         only checked at level "full"
    ON = ("cuda",)         the devices it is for; "emulated" is one
    ORDER = 10             items are run in this order, then by name
    CRASHES = True         it may crash the process: opsmith.check runs it in a child process

Modules that begin with an underscore hold what items share.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..subject import Subject

EVERYWHERE = ("cpu", "cuda")


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


def _item(name: str) -> CheckItem:
    module = importlib.import_module(f"{__name__}.{name}")
    description = (module.__doc__ or "").strip().split("\n")[0]
    return CheckItem(
        name,
        description,
        module.check,
        getattr(module, "LEVEL", "quick"),
        tuple(getattr(module, "ON", EVERYWHERE)),
        getattr(module, "ORDER", 50),
        getattr(module, "CRASHES", False),
    )
