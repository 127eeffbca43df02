"""Which ops a command is about: by name, or by the file or module that declares them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from .. import ops
from ._screen import RefusedError
from ._sources import SHIPPED, declared, find, is_file, load, look_here

if TYPE_CHECKING:
    from ..operator.op import Op


def selected(names: Sequence[str], sources: Sequence[str], verb: str) -> list[Op]:
    """The ops of those names, each once, in that order; without names those that the sources declare, and without
    sources those shipped with opsmith. Raises RefusedError."""
    from ..operator.registry import registry

    before = set(registry)
    loaded = [load(source) for source in sources]
    if names:
        found = [op for name in names for op in _meant(name, sources, verb)]
    else:
        found = [op for module in loaded for op in _ops_of(module, before)] or _shipped()
    return list({op.name: op for op in found}.values())


def _shipped() -> list[Op]:
    return [op for name, op in declared().items() if name.startswith(f"{SHIPPED}::")]


def _meant(name: str, sources: Sequence[str], verb: str) -> list[Op]:
    """The op of that name, or those that a file or module of that name declares."""
    from ..operator.registry import registry

    before = set(registry)
    if is_file(name):
        return _ops_of(load(name), before)
    known = {each.rpartition("::")[2] for each in registry} | {*ops.names()}
    if "::" in name or name in known or not _is_module(name):
        return [find(name, sources, verb)]
    return _ops_of(load(name), before)


def _is_module(name: str) -> bool:
    """Whether it looks like a module's name, and the first part of it can be imported."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return False
    if len(parts) > 1:
        return True
    look_here()
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _ops_of(module: ModuleType, before: set[str]) -> list[Op]:
    """What a module or the modules of its package declare; else what came to be declared when it was imported."""
    from ..operator.registry import registry

    name = module.__name__
    own = [op for op in registry.values() if op.__module__ == name or op.__module__.startswith(f"{name}.")]
    new = [op for op in registry.values() if op.name not in before and not op.name.startswith(f"{SHIPPED}::")]
    if not (own or new):
        where = getattr(module, "__file__", None) or name
        raise RefusedError(
            f"{where} declares no op. An operator registered without opsmith is checked beside plain PyTorch:\n"
            "  opsmith check torch.ops.NAMESPACE.NAME --reference FILE.py:FUNCTION"
        )
    return own or new
