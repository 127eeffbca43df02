"""Call time on a CPU: the same calls by the clock, on arguments in turn, with the number of threads pinned."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

ROUND = 0.02
"""Seconds that a sample should last at least."""
CACHE_BYTES = 64 << 20
"""What arguments are rotated past: no less than the caches of the machines that people have."""


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Inside, torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CallSampler:
    """`calls`: the same call on other arguments."""

    def __init__(self, calls: Sequence[Callable[[], Any]], seconds: float = ROUND) -> None:
        self._calls = list(calls)
        self._position = 0
        self._repeats = 1
        for call in self._calls[:2]:
            call()
        while (taken := min(self._timed(self._repeats) for _ in range(2)) * self._repeats) < seconds / 2:
            self._repeats = max(
                self._repeats + 1, min(4 * self._repeats, round(self._repeats * seconds / max(taken, 1e-9)))
            )

    def sample(self) -> float:
        return self._timed(self._repeats)

    def _timed(self, repeats: int) -> float:
        calls, count, position = self._calls, len(self._calls), self._position
        began = time.perf_counter()
        for turn in range(position, position + repeats):
            calls[turn % count]()
        taken = time.perf_counter() - began
        self._position = (position + repeats) % count
        return taken / repeats
