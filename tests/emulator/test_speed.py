"""How fast the emulator is on one core, and that blocks run on all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.errors import KernelFault

SOURCE = opsmith.cuda_source(Path(__file__).parent / "speed.cu")

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process has one core")


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Inside, this process has that many cores: as many workers has a launch."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def seconds(run: Callable[[], None], times: int = 5, clock: Callable[[], float] = time.process_time) -> float:
    """The least of some runs, after one that compiles: the processor's time, the workers' included, or by a clock."""
    run()
    taken = []
    for _ in range(times):
        start = clock()
        run()
        taken.append(clock() - start)
    return min(taken)


@pytest.mark.timing
@pytest.mark.parametrize(
    ("checks", "threads", "millions"),
    [pytest.param(False, 2**22, 20, id="without checks"), pytest.param(True, 2**20, 2, id="with checks")],
)
def test_threads_of_a_pointwise_kernel_a_second(checks: bool, threads: int, millions: float) -> None:
    x = torch.randn(threads)
    y = torch.empty_like(x)
    with opsmith.emulate(checks=checks), on_cores(1):
        taken = seconds(lambda: SOURCE.pointwise[threads // 256, 256](x, y, 2.0, threads))
    assert torch.equal(y, 2.0 * x + 1.0)
    print(f"{threads / taken / 1e6:.1f} million threads a second")
    assert threads / taken >= millions * 1e6


@pytest.mark.timing
def test_barrier_crossings_a_second() -> None:
    blocks, threads, times = 16, 256, 1000
    y = torch.zeros(blocks * threads)
    with opsmith.emulate(checks=False), on_cores(1):
        taken = seconds(lambda: SOURCE.barriers[blocks, threads](y, times))
    crossings = blocks * threads * times
    assert y.all()
    print(f"{crossings / taken / 1e6:.1f} million crossings a second")
    assert crossings / taken >= 5e6


@pytest.mark.timing
@pytest.mark.parametrize(
    ("checks", "most"),
    [pytest.param(False, 100e-6, id="without checks"), pytest.param(True, 200e-6, id="with checks")],
)
def test_a_small_launch_takes_little_time(checks: bool, most: float) -> None:
    x = torch.randn(256)
    y = torch.empty_like(x)
    with opsmith.emulate(checks=checks):
        taken = seconds(lambda: SOURCE.pointwise[1, 256](x, y, 2.0, 256), times=500, clock=time.perf_counter)
    assert torch.equal(y, 2.0 * x + 1.0)
    print(f"{taken * 1e6:.0f} us a launch")
    assert taken < most


@pytest.mark.timing
@two_cores
@pytest.mark.parametrize("checks", [True, False])
def test_two_cores_run_many_blocks_in_less_time_than_one(checks: bool) -> None:
    blocks = 64
    y = torch.zeros(blocks * 256)

    def launch() -> None:
        SOURCE.barriers[blocks, 256](y, 200)

    taken = []
    for cores in (1, 2):
        with opsmith.emulate(checks=checks), on_cores(cores):
            taken.append(seconds(launch, times=10, clock=time.perf_counter))
    one, two = taken
    print(f"{one:.3f} s on one core, {two:.3f} s on two: {one / two:.2f} times as fast")
    assert two < 0.7 * one


@two_cores
@pytest.mark.parametrize("checks", [True, False])
def test_blocks_run_at_the_same_time_on_as_many_cores_as_there_are(checks: bool) -> None:
    with opsmith.emulate(checks=checks):
        SOURCE.meeting[2, 32](torch.zeros(1, dtype=torch.int32))
    with opsmith.emulate(checks=checks, timeout=0.2), on_cores(1), pytest.raises(KernelFault, match="hang"):
        SOURCE.meeting[2, 32](torch.zeros(1, dtype=torch.int32))
