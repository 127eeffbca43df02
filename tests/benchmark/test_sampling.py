"""Samples are taken in turns until the spread is known, and noise is not taken for a difference."""

from __future__ import annotations

import gc
import itertools
import math
import random
from collections.abc import Callable

import pytest

from opsmith.benchmark import Timing
from opsmith.benchmark.timing import (
    LEAST_ROUNDS,
    SamplingError,
    indistinguishable,
    interval,
    measured,
    median_interval,
)


class Made:
    """A sampler of made times."""

    def __init__(self, times: Callable[[], float]) -> None:
        self._times = times

    def sample(self) -> float:
        return self._times()


def steady(value: float) -> Made:
    return Made(lambda: value)


def noisy(seed: int, spread: float = 0.5) -> Made:
    draw = random.Random(seed)
    return Made(lambda: 1 + draw.uniform(-spread, spread))


def test_an_interval_holds_the_median_and_narrows_with_more_samples() -> None:
    draw = random.Random(1)
    samples = [draw.gauss(10, 1) for _ in range(400)]
    few, many = interval(samples[:20]), interval(samples)
    for each in (few, many):
        assert each.low <= each.median <= each.high
    assert many.half_width < few.half_width / 2
    assert many.low < 10 < many.high


def test_it_is_a_95_percent_interval() -> None:
    """Of 200 sets of samples, about 190 have the true median inside."""
    draw = random.Random(2)
    inside = 0
    for _ in range(200):
        found = interval([draw.gauss(10, 1) for _ in range(25)])
        inside += found.low <= 10 <= found.high
    assert 180 <= inside <= 199


def test_an_interval_is_the_same_every_time_and_of_one_value_is_that_value() -> None:
    assert interval([1.0, 2.0, 4.0, 3.0]) == interval([1.0, 2.0, 4.0, 3.0])
    alone = interval([7.0])
    assert (alone.low, alone.median, alone.high, alone.half_width) == (7.0, 7.0, 7.0, 0.0)


def test_what_does_not_vary_is_known_after_the_least_number_of_rounds() -> None:
    timings = measured({"a": steady(1.0), "b": steady(2.0)})
    assert {len(each.samples) for each in timings.values()} == {LEAST_ROUNDS}
    assert timings["b"].versus(timings["a"]).ratio == 2


def test_it_continues_while_one_of_them_varies_and_ends_at_the_limit() -> None:
    timings = measured({"a": steady(1.0), "b": noisy(0)}, most=21)
    assert {len(each.samples) for each in timings.values()} == {21}


def test_less_precision_takes_fewer_rounds() -> None:
    rounds = [len(measured({"a": noisy(3, 0.1)}, precision=each, most=200)["a"].samples) for each in (0.005, 0.1)]
    assert rounds[0] > rounds[1] >= LEAST_ROUNDS


def test_each_round_has_a_new_random_order() -> None:
    calls: list[str] = []

    def called(name: str) -> Made:
        return Made(lambda: calls.append(name) or 1.0)  # type: ignore[func-returns-value]

    measured({name: called(name) for name in "abc"}, least=12, most=12)
    rounds = [tuple(calls[first : first + 3]) for first in range(0, len(calls), 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len(set(rounds)) > 2


def test_a_slow_spell_meets_all_alike() -> None:
    """In turns, a spell in which everything takes three times as long leaves the ratio as it is."""
    clock = itertools.count()

    def slowed(time: float) -> Made:
        return Made(lambda: time * (3 if 20 <= next(clock) < 60 else 1))

    timings = measured({"a": slowed(1.0), "b": slowed(2.0)}, least=40, most=40)
    assert timings["b"].versus(timings["a"]).ratio == pytest.approx(2, rel=0.01)


def test_one_that_fails_costs_no_other_a_turn() -> None:
    """A sampler may go through places turn by turn: all are to be at the same one."""
    turns = {"a": 0, "b": 0, "c": 0}

    def counted(name: str) -> Made:
        def sample() -> float:
            turns[name] += 1
            if name == "b" and turns[name] == 4:
                raise RuntimeError("gone")
            return 1.0

        return Made(sample)

    with pytest.raises(SamplingError, match="b: gone") as raised:
        measured({name: counted(name) for name in turns})
    assert raised.value.name == "b" and turns == {"a": 4, "b": 4, "c": 4}


def test_the_collector_of_garbage_is_off_inside_and_as_before_after() -> None:
    seen: list[bool] = []
    measured({"a": Made(lambda: seen.append(gc.isenabled()) or 1.0)}, least=3, most=3)  # type: ignore[func-returns-value]
    assert seen == [False] * 3 and gc.isenabled()
    gc.disable()
    try:
        measured({"a": steady(1.0)}, least=3, most=3)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_two_are_distinguished_if_noise_allows_it() -> None:
    draw = random.Random(5)
    around = [1 + draw.uniform(-0.01, 0.01) for _ in range(30)]
    one = Timing("one", tuple(around))
    same = Timing("same", tuple(reversed(around)))
    slower = Timing("slower", tuple(2 * each for each in around))
    wild = Timing("wild", tuple(1 + draw.uniform(-0.6, 0.6) for _ in range(30)))
    assert not indistinguishable(same, one), "they are the same, and known to be, within 3 %"
    assert not indistinguishable(slower, one)
    assert indistinguishable(wild, one), "faster or slower by more than 3 %: noise hides it"


@pytest.mark.parametrize("count", [6, 9, 12, 30, 60])
def test_an_interval_has_the_median_in_it_as_often_as_it_says(count: int) -> None:
    draw = random.Random(0)
    inside = 0
    for _ in range(2000):
        low, high = median_interval([draw.expovariate(1.0) for _ in range(count)])
        inside += low <= math.log(2) <= high
    assert inside / 2000 >= 0.945


def test_of_few_values_an_interval_has_them_all() -> None:
    assert median_interval([3.0]) == (3.0, 3.0) and median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
