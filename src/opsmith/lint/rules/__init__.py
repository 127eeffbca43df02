"""The rules. Each file of this folder has one, a function named like the file."""

from __future__ import annotations

from pkgutil import iter_modules

from ..._lazy import import_by_name
from ..rule import Rule

RULES: tuple[Rule, ...] = tuple(
    getattr(import_by_name(f"{__name__}.{module.name}"), module.name) for module in iter_modules(__path__)
)
