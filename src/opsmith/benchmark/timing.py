"""Callables timed fairly: in one process, in turns, each round in another order, with confidence intervals.

A round calls each callable often enough to last `round_seconds`; callables take turns so that a slow phase of the
machine affects all alike, in a new random order each round. A ratio is taken within each round, and its median is given
with the 95 % interval that the order of the rounds allows.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one sample per round."""

    name: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median."""
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / (2 * self.median)

    def versus(self, other: Timing) -> Versus:
        """How many times as long as `other` this takes, round by round."""
        ratios = [mine / theirs for mine, theirs in zip(self.samples, other.samples, strict=True)]
        return Versus(statistics.median(ratios), *median_interval(ratios))


@dataclass(frozen=True)
class Versus:
    """A ratio of times with its 95 % interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x ({self.low:.2f}-{self.high:.2f})"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a median, whatever values are distributed by: each falls on either side of it with even
    odds, so that fewer than `beyond` of them lie on one side in 2.5 % of all cases at most. Of fewer than six values
    it is all there is. (Resampling them instead is too sure of itself: nine covered 90 %.)"""
    ordered, count = sorted(values), len(values)
    beyond, odds = 0, 0.5**count
    while beyond < (count - 1) // 2 and odds <= 0.025:
        beyond += 1
        odds += math.comb(count, beyond) * 0.5**count
    beyond = max(0, beyond - 1)
    return ordered[beyond], ordered[-1 - beyond]


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Inside, Python's garbage collector does not run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def time_together(
    callables: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 25,
    round_seconds: float = 0.01,
    synchronize: Callable[[], object] | None = None,
) -> dict[str, Timing]:
    """Times each callable; for work on a GPU give `synchronize=torch.cuda.synchronize`, called around each round."""
    wait = synchronize or _nothing
    repeats = {name: _calibrate(function, round_seconds, wait) for name, function in callables.items()}
    samples: dict[str, list[float]] = {name: [] for name in callables}
    order = list(callables)
    draw = random.Random(0)
    with collector_off():
        for _ in range(rounds):
            draw.shuffle(order)
            for name in order:
                samples[name].append(_round(callables[name], repeats[name], wait))
    return {name: Timing(name, tuple(values)) for name, values in samples.items()}


def _calibrate(function: Callable[[], object], seconds: float, wait: Callable[[], object]) -> int:
    """How many calls last about `seconds`; warms up on the way."""
    repeats = 1
    while True:
        taken = min(_round(function, repeats, wait) for _ in range(3)) * repeats  # the least disturbed of three
        if taken >= seconds / 2:
            return max(1, round(repeats * seconds / taken))
        repeats *= 4


def _round(function: Callable[[], object], repeats: int, wait: Callable[[], object]) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    wait()
    return (time.perf_counter() - start) / repeats


def _nothing() -> None:
    pass


def synchronizer(device: str | torch.device) -> Callable[[], object]:
    """What to wait on for a device's work to be done."""
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else _nothing
