"""time_together distinguishes callables that differ, and only these."""

from __future__ import annotations

import gc

import pytest

from opsmith.benchmark import Timing, time_together

pytestmark = pytest.mark.timing


def work(amount: int) -> int:
    """Something that takes `amount` times as long as work(1), however busy the machine."""
    return sum(range(amount * 4000))


def test_a_known_ratio_is_found() -> None:
    timings = time_together({"one": lambda: work(1), "three": lambda: work(3)}, rounds=41, round_seconds=0.003)
    versus = timings["three"].versus(timings["one"])
    assert versus.low <= versus.ratio <= versus.high
    assert versus.ratio == pytest.approx(3, rel=0.2)


def test_equal_callables_are_not_distinguished() -> None:
    timings = time_together({"a": lambda: work(1), "b": lambda: work(1)}, rounds=41, round_seconds=0.003)
    versus = timings["a"].versus(timings["b"])
    assert versus.low <= 1.05 and versus.high >= 0.95


def test_it_waits_for_the_device() -> None:
    waits: list[int] = []
    time_together({"x": lambda: None}, rounds=3, round_seconds=1e-4, synchronize=lambda: waits.append(1))
    assert len(waits) >= 6, "before and after each round"


def test_garbage_collection_is_off_inside_and_back_on_after() -> None:
    seen: list[bool] = []
    time_together({"x": lambda: seen.append(gc.isenabled())}, rounds=2, round_seconds=1e-4)
    assert seen[-1] is False
    assert gc.isenabled()


def test_a_ratio_as_text() -> None:
    first, second = Timing("a", (2.0, 2.0, 2.0)), Timing("b", (1.0, 1.0, 1.0))
    assert str(first.versus(second)) == "2.00x (2.00-2.00)"
