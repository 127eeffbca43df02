"""The peak memory of a call, and how much of it is still allocated afterwards."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import values as call_values
from ..accuracy.truth import Function
from ..subject import Subject


@dataclass(frozen=True)
class Allocated:
    """Bytes: the peak that a call allocated, and what is still allocated after its results are freed."""

    peak: int
    left: int


def measured(subject: Subject, function: Function, values: Sequence[Any], gradients: bool) -> Allocated:
    """Of a call of the op, or of its reference, and of its backward; without the incoming gradients."""
    own = call_values.mapped(
        subject.arguments, values, lambda t: t.detach().requires_grad_(gradients and t.is_floating_point())
    )
    leaves = [tensor for tensor in call_values.present(subject.arguments, own) if tensor.requires_grad]

    def results() -> list[torch.Tensor]:
        return call_values.listed(function(subject.copied(own)))

    weights = [torch.ones_like(result) for result in results() if result.requires_grad]

    def called() -> Any:
        found = results()
        targets = [result for result in found if result.requires_grad]
        return found, torch.autograd.grad(targets, leaves, weights, allow_unused=True) if targets else None

    return allocated(called, subject.device)


def allocated(function: Callable[[], Any], device: str = "cpu") -> Allocated:
    """Of a second call, so that one-time allocations do not count. The garbage collector is off: a reference cycle that
    holds a tensor counts as a leak."""
    function()
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _on_cuda(function) if device == "cuda" else _on_cpu(function)
    finally:
        if collecting:
            gc.enable()


def _on_cpu(function: Callable[[], Any]) -> Allocated:
    """From the events of torch's legacy profiler; the current one prints, and is a hundred times slower to start."""
    from torch.autograd import _disable_profiler_legacy, _enable_profiler_legacy, profiler_legacy

    _enable_profiler_legacy(profiler_legacy.profile(profile_memory=True).config())
    try:
        function()
    finally:
        threads = _disable_profiler_legacy()
    held = peak = 0
    events: list[Any] = [event for thread in threads for event in thread]
    for event in events:
        if event.kind() == "memory_alloc":
            held += event.cpu_memory_usage()
            peak = max(peak, held)
    return Allocated(peak, held)


def _on_cuda(function: Callable[[], Any]) -> Allocated:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    peak = torch.cuda.max_memory_allocated() - before
    return Allocated(peak, torch.cuda.memory_allocated() - before)
