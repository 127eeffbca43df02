"""How calls are made up: the samples, samples cut down to a small size, and new calls that follow their pattern."""

from __future__ import annotations

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, {})
