"""How much memory a call holds at most, and how much it leaves behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...reference.signature import flatten, unflatten
from ..subject import Subject, listed

if TYPE_CHECKING:
    from ...operator.adopted import Adopted
    from ...operator.op import Op
    from ..accuracy.truth import Function


@dataclass(frozen=True)
class Allocated:
    """Bytes: the most that were held at once, of what was allocated during a call; those that are still held when what
    it returned is gone."""

    peak: int
    left: int


def of_call(op: Op | Adopted, *args: Any, gradients: bool = True, device: str = "cpu", **kwargs: Any) -> Allocated:
    """Of a call of an op, and of its backward."""
    subject = Subject(op, device)
    return measured(subject, subject.raw, op.signature.bind_call(args, kwargs), gradients)


def measured(subject: Subject, function: Function, values: Sequence[Any], gradients: bool) -> Allocated:
    """Of a call of the op, or of its reference, and of its backward. The gradients that it is given are not counted."""
    tensors = [
        t.detach().requires_grad_(gradients and t.is_floating_point()) if t is not None else None
        for t in flatten(subject.arguments, values)
    ]
    own = unflatten(subject.arguments, values, tensors)
    leaves = [tensor for tensor in tensors if tensor is not None and tensor.requires_grad]

    def results() -> list[torch.Tensor]:
        copies = [v.clone() if a.mutated else v for a, v in zip(subject.arguments, own, strict=True)]
        return listed(function(copies))

    weights = [torch.ones_like(result) for result in results() if result.requires_grad]

    def called() -> Any:
        found = results()
        targets = [result for result in found if result.requires_grad]
        return found, torch.autograd.grad(targets, leaves, weights, allow_unused=True) if targets else None

    return allocated(called, subject.device)


def allocated(function: Callable[[], Any], device: str = "cpu") -> Allocated:
    """Of a call that has been made before, so that what is made once is not counted. Nothing waits for the garbage
    collector: a cycle that holds a tensor holds it for as long as it likes."""
    function()
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _on_cuda(function) if device == "cuda" else _on_cpu(function)
    finally:
        if collecting:
            gc.enable()


def _on_cpu(function: Callable[[], Any]) -> Allocated:
    """By the events of torch's first profiler; today's prints, and takes a hundred times as long to begin."""
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
