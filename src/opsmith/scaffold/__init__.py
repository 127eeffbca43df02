"""What `opsmith new` writes: a project around one op, or one more op for a package. It needs neither torch nor ops."""

from __future__ import annotations

from .planning import Plan, plan
from .templates import KINDS
from .writing import write

__all__ = ["KINDS", "Plan", "plan", "write"]
