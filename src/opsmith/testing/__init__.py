"""The checklist in user tests: `check_op`, one test per item; `assert_matches`, one call compared with the reference.

The pytest plug-in is plugin.py. Every pytest run on a machine with opsmith loads it, so nothing here imports torch
at import time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy
from .items import check_op

if TYPE_CHECKING:
    from ..checks.matching import assert_matches

__all__ = ["assert_matches", "check_op"]


__getattr__, __dir__ = lazy(__name__, {"assert_matches": "..checks.matching"})
