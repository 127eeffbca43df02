"""The shipped ops, a folder each: `opsmith.ops.mish` is the op, and torch knows it as torch.ops.opsmith.mish.

An op is declared on first access. A new folder is a new op; there is no list to add it to.
"""

from __future__ import annotations

import pkgutil
import sys
from types import ModuleType
from typing import Any

from .._lazy import import_by_name


def names() -> list[str]:
    """Every op that has a folder, the annotated `_template` included."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if found.ispkg)


__all__ = [name for name in names() if not name.startswith("_")]


class _Ops(ModuleType):
    """This module, with an op for each folder."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in names():
            raise AttributeError(f"module {__name__!r} has no op {name!r}; there are {', '.join(__all__)}")
        return getattr(import_by_name(f"{__name__}.{name}"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the folder opsmith.ops.mish binds it here as `mish`, which must be the op in it.
        if isinstance(value, ModuleType) and hasattr(value, name):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Ops
