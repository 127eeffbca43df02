"""Every declared op, by name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..errors import NameTakenError, UnknownOpError
from ..runtime import shipped
from ..runtime.operator import exists
from ..toolchain.cache import search_package_of
from . import child_process

if TYPE_CHECKING:
    from .op import Op

registry: dict[str, Op] = {}
lock = threading.RLock()
_detours = 0  # those of every op, including ops declared later


def get(name: str) -> Op:
    """The declared op of that name."""
    try:
        return registry[name]
    except KeyError:
        raise UnknownOpError(name, sorted(registry)) from None


def find(name: str, module: str) -> Op:
    """How an Op is unpickled: the op of that name, importing the module that declares it if needed."""
    if name not in registry:
        child_process.import_as_child(module)
    return get(name)


def replaced(name: str, module: str) -> Op | None:
    """The op that a declaration in a module replaces, if any. Raises NameTakenError if the name belongs to others."""
    former = registry.get(name)
    if former is None and exists(name) and not shipped.has_defined(name):
        raise NameTakenError(name, "a library outside opsmith")
    if former is not None and former.__module__ != module:
        raise NameTakenError(name, f"module {former.__module__}")
    return former


def add(op: Op) -> None:
    search_package_of(op.__module__)
    with lock:
        op._detour(_detours)
        registry[op.name] = op


def detour_every_op(change: int) -> None:
    """1: from now on every op's call goes through the family in use; -1: undo that."""
    global _detours
    with lock:
        _detours += change
        for each in registry.values():
            each._detour(change)


def every_op_detours() -> bool:
    """Whether some thread emulates."""
    return _detours > 0
