"""Stage: what all contenders have in common on one workload. They read the same arguments and gradients, and on a GPU
their results lie in the same memory, for some places in it are slower than others, for any kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import cpu, gpu
from .contenders import Function
from .sampling import Sampler
from .workload import Gradients, Workload, call_for


class Stage:
    """Arguments, gradients of results and, on a GPU, places for results."""

    def __init__(self, workload: Workload, direction: str) -> None:
        self._workload, self._direction = workload, direction
        self._on_gpu = workload.device.type == "cuda"
        self._sets = workload.copies(gpu.rotated_bytes() if self._on_gpu else cpu.CACHE_BYTES)
        self._gradients = [Gradients() for _ in self._sets]
        self._places = gpu.Places() if self._on_gpu else None

    def sampler(self, function: Function) -> Sampler:
        signature = self._workload.op.signature

        def made(number: int) -> Callable[[], Any]:
            return call_for(function, self._sets[number], signature, self._direction, self._gradients[number])

        if self._on_gpu:
            return gpu.sampler(made, len(self._sets), self._places)
        return cpu.CallSampler([made(number) for number in range(len(self._sets))])
