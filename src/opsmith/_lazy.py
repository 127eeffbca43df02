"""The only imports by a name that is computed: lazy public names (PEP 562), and modules that are found by their files.

>>> __getattr__, __dir__ = lazy(__name__, {"check": ".checks"})
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def import_by_name(name: str, package: str | None = None) -> ModuleType:
    """importlib.import_module. No contract sees such an import: rooms of opsmith import only their own modules this
    way, and modules of others."""
    return importlib.import_module(name, package)


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `package`. `homes` gives the module of each public name, relative to the
    package. A submodule that nobody has imported yet is imported when it is asked for by name."""
    namespace = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:
        if name in homes:
            namespace[name] = value = getattr(import_by_name(homes[name], package), name)
            return value
        if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            return import_by_name(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*namespace, *homes})

    return __getattr__, __dir__
