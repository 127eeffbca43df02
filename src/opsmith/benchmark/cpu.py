"""Measuring on a CPU: a fixed number of threads, and the load of other processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import torch

CACHE_BYTES = 64 << 20  # rotating arguments exceed this, and with it the caches of common machines


@contextlib.contextmanager
def pinned(threads: int | None) -> Iterator[None]:
    """Inside, torch uses this many threads; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OtherLoad:
    """The share of this process's CPUs that other processes used during measurements."""

    def __init__(self) -> None:
        self._used = self._available = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        busy, own, began = _busy_seconds(), time.process_time(), time.perf_counter()
        yield
        if busy is None or (now := _busy_seconds()) is None:
            return
        self._used += max(0.0, now - busy - (time.process_time() - own))
        self._available += (time.perf_counter() - began) * len(os.sched_getaffinity(0))

    @property
    def share(self) -> float:
        return self._used / self._available if self._available else 0.0


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
