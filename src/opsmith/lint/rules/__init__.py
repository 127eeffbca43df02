"""The rules. Each file of this folder has one, a function named like the file."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..rule import Rule

RULES: tuple[Rule, ...] = tuple(
    getattr(import_module(f"{__name__}.{module.name}"), module.name) for module in iter_modules(__path__)
)
