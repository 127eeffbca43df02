"""Calls to check: the samples, samples cut down to a small size, and generated calls that follow their patterns."""

from __future__ import annotations

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, {})
