"""Kernel time on a GPU: calls captured as a CUDA graph and replayed, over arguments that the L2 cache does not hold.

What a graph replays is the kernels alone: neither Python nor the driver's launches. A graph has several calls, each on
arguments and results of its own, and before each replay the cache is overwritten. Some places in memory are up to 10 %
slower than others, for any kernel: each sampler has several graphs, with results elsewhere, and goes through them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

CAPTURES = 3
ENOUGH = 60e-6
"""Seconds that a replay should last, for an event's clock ticks in half microseconds."""


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


class GraphSampler:
    """`calls`: the same call on other arguments, one after the other in a graph."""

    def __init__(self, calls: Sequence[Callable[[], Any]], captures: int = CAPTURES) -> None:
        self._calls = list(calls)
        self._graphs: list[tuple[torch.cuda.CUDAGraph, Any]] = []
        self._turn = 0
        with torch.cuda.stream(stream()):
            for call in self._calls[:2]:
                for _ in range(2):
                    call()
        torch.cuda.synchronize()
        for number in range(captures):
            self._graphs.append(self._captured(number))
        for graph, _ in self._graphs:
            graph.replay()
        torch.cuda.synchronize()

    def _captured(self, number: int) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        moved = torch.empty((1 + 3 * number) << 21, dtype=torch.uint8, device="cuda")
        with torch.cuda.graph(graph, stream=stream()):
            shifted = torch.empty((1 + 5 * number) << 21, dtype=torch.uint8, device="cuda")
            kept = [call() for call in self._calls]
        return graph, (moved, shifted, kept)

    def sample(self) -> float:
        graph, _ = self._graphs[self._turn % len(self._graphs)]
        self._turn += 1
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        _flush().fill_(self._turn % 251)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / len(self._calls)


def sampler(make: Callable[[int], Callable[[], Any]], sets: int) -> GraphSampler:
    """A sampler of the calls make(0) ... make(sets - 1): made and captured on the measuring stream."""
    stream().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream()):
        calls = [make(number) for number in range(sets)]
    return GraphSampler(calls)


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
