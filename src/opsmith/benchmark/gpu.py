"""Kernel time on a GPU: calls captured as a CUDA graph and replayed, over arguments that exceed the L2 cache.

A replay runs the kernels alone, without Python and without launches by the driver. A graph has several calls, each on
its own arguments and results, and before each replay the cache is overwritten. Some memory locations are up to 10 %
slower than others, for any kernel. Each sampler therefore rotates through several graphs with results at other
locations, and all contenders have their results at the same locations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .timing import STEP

CAPTURES = STEP
MOVED = 1 << 30
"""Bytes that the calls of a graph move, unless that takes too many calls: they share the cost of a replay's start and
of the cache's first evictions. (With two calls per graph, 2^22 floats took 11.4 us instead of 10.0.)"""


@functools.cache
def stream() -> torch.cuda.Stream:
    """The stream of captures. Forwards run on it too, since a backward runs on the stream of its forward."""
    return torch.cuda.Stream()


@functools.cache
def l2_bytes() -> int:
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20))


@functools.cache
def _flush() -> torch.Tensor:
    return torch.empty(2 * l2_bytes(), dtype=torch.uint8, device="cuda")


@functools.cache
def rotated_bytes() -> int:
    """The least size of the arguments and results of a graph's calls together, unless that takes too many calls."""
    return max(l2_bytes(), min(MOVED, torch.cuda.get_device_properties(0).total_memory // 64))


class Places:
    """Memory for the results of captured calls, at another location for each capture of a sampler. All contenders write
    to the same locations."""

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
    """`calls`: the same call on other arguments; a graph runs them one after the other."""

    def __init__(self, calls: Sequence[Callable[[], Any]], places: Places | None = None) -> None:
        self._calls = list(calls)
        self._turn = 0
        with torch.cuda.stream(stream()):
            for call in self._calls[:2]:
                for _ in range(2):
                    call()
        torch.cuda.synchronize()
        _captured(self._calls[:1])  # in separate memory, which stays in use if a call cannot be captured
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
