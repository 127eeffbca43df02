"""A package whose public names are imported from their homes when they are first used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> None:
    """Makes `package` look each name up in the module that `homes` says: one of its own, or with a dot in front one
    beside it."""

    class Package(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if home := homes.get(name):
                value = getattr(importlib.import_module(f".{home}", package), name)
                setattr(self, name, value)
                return value
            if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
                return importlib.import_module(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            # Importing the module opsmith.op binds it here as `op`, which is to be the function.
            if homes.get(name) == name and isinstance(value, ModuleType):
                value = getattr(value, name)
            super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *homes})

    sys.modules[package].__class__ = Package
