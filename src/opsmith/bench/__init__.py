"""Measuring. So far: callables timed side by side."""

from .timing import Timing, Versus, time_together

__all__ = ["Timing", "Versus", "time_together"]
