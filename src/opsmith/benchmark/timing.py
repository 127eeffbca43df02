"""Callables and samplers timed side by side, with confidence intervals.

A sampler is anything with `sample() -> float`, the seconds of one call. In each round every sampler has one turn, in a
new random order, so that a slow phase of the machine affects all alike. Ratios are taken within each round.
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
from typing import Any, Protocol

import torch

LEAST_ROUNDS, STEP = 10, 5
"""Rounds before sampling may end, and between two decisions. A sampler may rotate through STEP memory locations."""
PRECISION = 0.01


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one sample per round."""

    name: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

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


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % interval."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Relative to the median."""
        return (self.high - self.low) / (2 * self.median) if self.median else 0.0


def interval(samples: Sequence[float]) -> Interval:
    return Interval(statistics.median(samples), *median_interval(samples))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a median, for any distribution: each value lies on either side of the median with even odds,
    so that fewer than `beyond` of them lie on one side in at most 2.5 % of all cases. Of fewer than six values it is
    their range. (Resampling them instead gives intervals that are too narrow: of nine, 90 %.)"""
    ordered, count = sorted(values), len(values)
    beyond, odds = 0, 0.5**count
    while beyond < (count - 1) // 2 and odds <= 0.025:
        beyond += 1
        odds += math.comb(count, beyond) * 0.5**count
    beyond = max(0, beyond - 1)
    return ordered[beyond], ordered[-1 - beyond]


def indistinguishable(first: Timing, second: Timing, least: float = 0.03) -> bool:
    """Whether noise hides which of two is faster by more than `least`."""
    ratio = first.versus(second)
    return ratio.low < 1 - least and ratio.high > 1 + least


class Sampler(Protocol):
    def sample(self) -> float: ...


class SamplingError(Exception):
    """What a sampler raised."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name}: {error}")
        self.name, self.error = name, error


class CallSampler:
    """Wall-clock time of calls in turn, repeated to last about `seconds`. `calls`: the same call on other arguments."""

    def __init__(
        self, calls: Sequence[Callable[[], Any]], seconds: float = 0.02, wait: Callable[[], object] = lambda: None
    ) -> None:
        self._calls, self._wait = list(calls), wait
        self._position = 0
        self._repeats = 1
        for call in self._calls[:2]:
            call()
        while (taken := min(self.sample() for _ in range(2)) * self._repeats) < seconds / 2:
            wanted = round(self._repeats * seconds / max(taken, 1e-9))
            self._repeats = max(self._repeats + 1, min(4 * self._repeats, wanted))

    def sample(self) -> float:
        calls, count, position, repeats = self._calls, len(self._calls), self._position, self._repeats
        self._wait()
        began = time.perf_counter()
        for turn in range(position, position + repeats):
            calls[turn % count]()
        self._wait()
        taken = time.perf_counter() - began
        self._position = (position + repeats) % count
        return taken / repeats


def measured(
    samplers: Mapping[str, Sampler], *, precision: float = PRECISION, least: int = LEAST_ROUNDS, most: int = 60
) -> dict[str, Timing]:
    """Equally many samples of each, until the 95 % interval of every median is within `precision` of it, or for `most`
    rounds. Raises SamplingError."""
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    order, draw = list(samplers), random.Random(0)
    with _collector_off():
        for turn in range(most):
            draw.shuffle(order)
            failed: SamplingError | None = None
            for name in order:
                try:
                    samples[name].append(samplers[name].sample())
                except Exception as error:
                    failed = failed or SamplingError(name, error)
            if failed is not None:  # raised after the round: all samplers are then at the same memory location
                raise failed from failed.error
            known = turn + 1 >= least and (turn + 1) % STEP == 0
            if known and all(interval(each).half_width <= precision for each in samples.values()):
                break
    return {name: Timing(name, tuple(values)) for name, values in samples.items()}


def time_together(
    callables: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 25,
    round_seconds: float = 0.01,
    synchronize: Callable[[], object] | None = None,
) -> dict[str, Timing]:
    """Times each callable; for work on a GPU give `synchronize=torch.cuda.synchronize`, called around each round."""
    wait = synchronize or (lambda: None)
    samplers = {name: CallSampler([function], round_seconds, wait) for name, function in callables.items()}
    try:
        return measured(samplers, least=rounds, most=rounds)
    except SamplingError as failed:
        raise failed.error from None


def synchronizer(device: str | torch.device) -> Callable[[], object] | None:
    """`synchronize` of time_together for a device."""
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else None


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """Inside, Python's garbage collector does not run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
