"""Kernel time on a GPU: calls captured as a CUDA graph and replayed, over arguments that the L2 cache does not hold.

What a graph replays is the kernels alone: neither Python nor the driver's launches. A graph has several calls, each on
arguments and results of its own, and before each replay the cache is overwritten. Some places in memory are up to 10 %
slower than others, for any kernel: each sampler has several graphs, with results elsewhere, and goes through them; and
all contenders have their results in the same places.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .sampling import STEP

CAPTURES = STEP
MOVED = 1 << 30
"""Bytes that the calls of a graph move, where that many calls are not too many: a replay's start and the cache's first
evictions are spread over them. (With two calls a graph, 2^22 floats took 11.4 us that take 10.0.)"""


@functools.cache
def stream() -> torch.cuda.Stream:
    """Where calls are captured. Forwards run here too, since a backward goes to the stream of its forward."""
    return torch.cuda.Stream()


@functools.cache
def l2_bytes() -> int:
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20))


@functools.cache
def _flush() -> torch.Tensor:
    return torch.empty(2 * l2_bytes(), dtype=torch.uint8, device="cuda")


@functools.cache
def rotated_bytes() -> int:
    """Bytes that the arguments and results of a graph's calls take together at least, if they are not too many."""
    return max(l2_bytes(), min(MOVED, torch.cuda.get_device_properties(0).total_memory // 64))


class Places:
    """Where captured calls put their results: memory of its own for each capture of a sampler. What one contender's
    calls have written to, the next contender's calls write to again."""

    def __init__(self, captures: int = CAPTURES) -> None:
        self.count = captures
        self._pools: list[Any] = []
        self._between: list[torch.Tensor] = []

    def capture(self, number: int, calls: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
        if number == len(self._pools):
            self._pools.append(torch.cuda.graph_pool_handle())
            self._between.append(_padding(3 * number))  # kept: the next capture is allocated after it
        return _captured(calls, self._pools[number], 5 * number)


def _captured(calls: Sequence[Callable[[], Any]], pool: Any = None, steps: int = 0) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream()):
        kept = [_padding(steps), *(call() for call in calls)]
    del kept  # only now: each call of a graph has its own results
    return graph


def _padding(steps: int) -> torch.Tensor:
    return torch.empty((1 + steps) << 21, dtype=torch.uint8, device="cuda")


class GraphSampler:
    """`calls`: the same call on other arguments, one after the other in a graph."""

    def __init__(self, calls: Sequence[Callable[[], Any]], places: Places | None = None) -> None:
        self._calls = list(calls)
        self._turn = 0
        with torch.cuda.stream(stream()):
            for call in self._calls[:2]:
                for _ in range(2):
                    call()
        torch.cuda.synchronize()
        _captured(self._calls[:1])  # in memory of its own, which stays in use where a call cannot be captured
        places = places or Places()
        self._graphs = [places.capture(number, self._calls) for number in range(places.count)]
        for graph in self._graphs:
            graph.replay()
        torch.cuda.synchronize()

    def sample(self) -> float:
        graph = self._graphs[self._turn % len(self._graphs)]
        self._turn += 1
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        _flush().fill_(self._turn % 251)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / len(self._calls)


def sampler(make: Callable[[int], Callable[[], Any]], sets: int, places: Places | None = None) -> GraphSampler:
    """A sampler of the calls make(0) ... make(sets - 1): made and captured on the measuring stream."""
    stream().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream()):
        calls = [make(number) for number in range(sets)]
    return GraphSampler(calls, places)


def peak_bytes(call: Callable[[], Any]) -> int:
    """Memory that a call takes beyond what is held before it, its results included."""
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del kept
    return int(peak)
