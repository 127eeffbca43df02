"""The functions that expressions are made of, one row each: what torch calls it, its C++ text, its derivative.

`find` finds a row by what torch.fx saw called. Each module holds one family; adding a function is adding a row
there."""

from __future__ import annotations

from . import activation, arithmetic, casting, comparison, exponential, rounding, trigonometric
from .core import Builder, Call, Function, Translation, Value, find, names

FAMILIES = (arithmetic, exponential, trigonometric, comparison, rounding, casting, activation)

__all__ = ["Builder", "Call", "Function", "Translation", "Value", "find", "names"]
