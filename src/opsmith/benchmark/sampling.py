"""Contenders measured side by side until the spread of each is known, and how two of them compare.

A sampler is anything with `sample() -> float`, the seconds of one call. Contenders take turns, in a new
random order each round, so that a slow phase of the machine affects all alike. It ends when the 95 % interval of every
median is within `precision` of it, or with `most` rounds.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .timing import Timing, collector_off, median_interval

LEAST_ROUNDS, STEP = 10, 5
"""Rounds before it may end, and between two looks. A sampler may go through as many places in turn (gpu.CAPTURES)."""
PRECISION = 0.01


class Sampler(Protocol):
    def sample(self) -> float: ...


class SamplingError(Exception):
    """What a sampler raised."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name}: {error}")
        self.name, self.error = name, error


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


def measured(
    samplers: Mapping[str, Sampler], *, precision: float = PRECISION, least: int = LEAST_ROUNDS, most: int = 60
) -> dict[str, Timing]:
    """The samples of each contender, equally many for all. Raises SamplingError."""
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    order, draw = list(samplers), random.Random(0)
    with collector_off():
        for turn in range(most):
            draw.shuffle(order)
            failed: SamplingError | None = None
            for name in order:
                try:
                    samples[name].append(samplers[name].sample())
                except Exception as error:
                    failed = failed or SamplingError(name, error)
            if (
                failed is not None
            ):  # only now: all have had equally many turns, each possibly at another memory location
                raise failed from failed.error
            known = turn + 1 >= least and (turn + 1) % STEP == 0
            if known and all(interval(each).half_width <= precision for each in samples.values()):
                break
    return {name: Timing(name, tuple(values)) for name, values in samples.items()}


def indistinguishable(first: Timing, second: Timing, least: float = 0.03) -> bool:
    """Whether noise hides which of two is faster by more than `least`."""
    ratio = first.versus(second)
    return ratio.low < 1 - least and ratio.high > 1 + least
