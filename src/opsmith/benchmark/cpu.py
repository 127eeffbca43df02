"""Call time on a CPU: wall-clock time over rotating arguments, with a fixed number of threads."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

ROUND = 0.02
"""Seconds that a sample should last at least."""
CACHE_BYTES = 64 << 20
"""Rotating arguments exceed this: at least as much as the caches of common machines."""


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Inside, torch uses this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Neighbours:
    """What other processes took of the processors that this one may use, while it was measuring."""

    def __init__(self) -> None:
        self._taken = self._there = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        busy, own, began = _busy_seconds(), time.process_time(), time.perf_counter()
        yield
        if busy is None or (now := _busy_seconds()) is None:
            return
        self._taken += max(0.0, now - busy - (time.process_time() - own))
        self._there += (time.perf_counter() - began) * len(os.sched_getaffinity(0))

    @property
    def share(self) -> float:
        return self._taken / self._there if self._there else 0.0


def _busy_seconds() -> float | None:
    """Of the processors that this process may use, since the system began; None if the system does not report it."""
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    total = 0
    try:
        with open("/proc/stat") as lines:
            for name, *ticks in (line.split() for line in lines):
                if name in names:
                    user, nice, system, _, _, interrupts, softly, stolen = map(int, ticks[:8])
                    total += user + nice + system + interrupts + softly + stolen
    except (OSError, ValueError):
        return None
    return total / os.sysconf("SC_CLK_TCK")


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
