"""Where captured calls put their results, as far as it shows without a GPU: torch.cuda's graphs are made up here."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opsmith.benchmark import gpu


class Graphs:
    """Notes what is captured: the pool and the calls, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures: list[tuple[Any, list[str]]] = []
        self.called: list[str] = []
        self._pools = itertools.count(1)
        monkeypatch.setattr(gpu, "stream", lambda: None)
        monkeypatch.setattr(gpu, "_padding", lambda steps: steps)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: type("Graph", (), {"replay": lambda self: None})())
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(self._pools))
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.cuda, "graph", self._graph)

    @contextlib.contextmanager
    def _graph(self, graph: Any, pool: Any, stream: Any) -> Iterator[None]:
        before = len(self.called)
        try:
            yield
        finally:
            self.captures.append((pool, self.called[before:]))

    def call(self, name: str) -> Any:
        return lambda: self.called.append(name)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    return Graphs(monkeypatch)


def test_each_capture_has_a_pool_and_the_next_contender_has_the_same(graphs: Graphs) -> None:
    places = gpu.Places(3)
    for name in ("ours", "theirs"):
        gpu.GraphSampler([graphs.call(f"{name} {number}") for number in range(2)], places)
    expected = []
    for name in ("ours", "theirs"):
        expected += [(None, [f"{name} 0"]), *((pool, [f"{name} 0", f"{name} 1"]) for pool in (1, 2, 3))]
    assert graphs.captures == expected


def test_what_cannot_be_captured_leaves_the_others_pools_alone(graphs: Graphs) -> None:
    """torch never gives back the pool of a capture that failed."""
    places = gpu.Places(2)
    gpu.GraphSampler([graphs.call("ours")], places)
    turns = itertools.count()

    def synchronizes() -> None:
        if next(turns) >= 2:  # it is called twice before it is captured
            raise RuntimeError("not while capturing")

    with pytest.raises(RuntimeError, match="not while capturing"):
        gpu.GraphSampler([synchronizes], places)
    gpu.GraphSampler([graphs.call("theirs")], places)
    assert [pool for pool, _ in graphs.captures] == [None, 1, 2, None, None, 1, 2]
