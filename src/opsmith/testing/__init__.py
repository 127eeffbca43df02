"""The checklist in a user's tests: `check_op`, one test an item; `assert_matches`, one call against the reference.

The plug-in of pytest is plugin.py. It is loaded into every pytest run on a machine that has opsmith, so nothing here
imports torch before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy
from .items import check_op

if TYPE_CHECKING:
    from ..checks.calls.matching import assert_matches

__all__ = ["assert_matches", "check_op"]


__getattr__, __dir__ = lazy(__name__, {"assert_matches": "..checks.calls.matching"})
