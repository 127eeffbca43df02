"""A GPU to run the items' own steps by, where there is none: tensors are on the CPU, and each call ends at once.

Streams, events and graphs do what the items ask of them and no more: a stream that is held back is so until somebody
synchronises, and a replay calls again what was captured. Of what a GPU does, nothing is to be learned here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from opsmith.checks.items import _gpu, graph_replay
from opsmith.checks.outcome import Failed, Skipped
from opsmith.checks.subject import Subject


class FakeGpu:
    held = False
    """Whether any stream is."""
    left = 0
    """The error that the runtime keeps."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
        for name, value in {
            "Stream": lambda *a: Stream(self),
            "Event": lambda *a: Event(self),
            "CUDAGraph": Graph,
            "graph": captured,
            "stream": lambda stream: contextlib.nullcontext(),
            "synchronize": lambda *a: self.let_go(),
            "current_stream": lambda *a: Stream(self),
            "default_stream": lambda *a: Stream(self),
            "_sleep": lambda cycles: setattr(self, "held", True),
            "get_sync_debug_mode": lambda: 0,
            "set_sync_debug_mode": lambda mode: None,
            "device_count": lambda: 1,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(graph_replay, "capture", lambda stream, function: (len(function()), ""))
        monkeypatch.setattr(_gpu, "cuda_runtime", lambda: self)
        _gpu.side_streams.cache_clear()
        return self

    def let_go(self) -> None:
        self.held = False

    def cudaGetLastError(self) -> int:
        left, self.left = self.left, 0
        return left

    def cudaPeekAtLastError(self) -> int:
        return self.left

    def cudaSetDevice(self, index: int) -> int:
        self.left = 101
        return 101

    class cudaGetErrorString:  # called, and given a type to return, as ctypes has it
        restype: Any = None

        def __new__(cls, code: int) -> Any:
            return b"invalid device ordinal"


class Stream:
    cuda_stream = 0

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def wait_stream(self, other: Stream) -> None: ...

    def wait_event(self, event: Event) -> None: ...

    def synchronize(self) -> None: ...


class Event:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def record(self) -> None: ...

    def query(self) -> bool:
        return not self.gpu.held


class Graph:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, Callable[[], Any]]] = []

    def replay(self) -> None:
        for found, again in self.calls:
            for (_, kept), (_, fresh) in zip(found, again(), strict=True):
                if kept is not None:
                    kept.copy_(fresh)

    def reset(self) -> None: ...


@contextlib.contextmanager
def captured(graph: Graph, stream: Any) -> Iterator[None]:
    real = Subject.evaluate

    def recorded(subject: Subject, case: Any, gradients: bool) -> Any:
        found = [(what, None if t is None else t.clone()) for what, t in real(subject, case, gradients)]
        graph.calls.append((found, lambda: real(subject, case, gradients)))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Subject, "evaluate", recorded)
        yield


def outcome(item: Any, op: Any, level: Any = "quick") -> tuple[str, str]:
    """('passed' | 'skipped' | 'failed', what was said), and the lines of a failure are Python."""
    subject = Subject(op, "cpu", level)
    try:
        return "passed", item.check(subject)
    except Skipped as reason:
        return "skipped", str(reason)
    except Failed as failed:
        compile(subject.reproduction(failed), "reproduction", "exec")
        return "failed", failed.message
