"""The functions that expressions are made of, one row each: torch's names, the C++ text, the derivative.

`find` looks up what torch.fx recorded. Each module has one family; to add a function, add a row there."""

from __future__ import annotations

from . import activation, arithmetic, casting, comparison, exponential, losses, reductions, trigonometric  # noqa: F401
from .core import Builder, Call, Function, Value, find, names, of_rows

__all__ = ["Builder", "Call", "Function", "Value", "find", "names", "of_rows"]
