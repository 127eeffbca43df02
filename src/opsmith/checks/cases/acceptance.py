"""Which calls the reference accepts: only those are valid calls of the op. And how much work they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...reference.signature import flatten, unflatten
from ...reference.tensors import on_meta
from .case import Case

if TYPE_CHECKING:
    from ..subject import Subject

LARGE = 1 << 24
"""Elements that a result of a generated call may have: small tensors may broadcast to a large one."""


def taken(subject: Subject, case: Case) -> bool:
    """Whether the reference accepts a call. It runs on the CPU: an index out of range would end the GPU's context."""
    if (largest_result(subject, case) or 0) > max(LARGE, 2 * case.numel):
        return False
    try:
        subject.reference(unflatten(case.arguments, case.values, _on_cpu(case)))
    except Exception:
        return False
    return True


def finite(subject: Subject, case: Case) -> bool:
    """Whether the reference accepts a call and all its floating results are finite numbers."""
    try:
        results = subject.reference(unflatten(case.arguments, case.values, _on_cpu(case)))
    except Exception:
        return False
    return all(bool(result.isfinite().all()) for result in results if result.is_floating_point())


def largest_result(subject: Subject, case: Case) -> int | None:
    """Elements of the largest result, from meta tensors; None where the reference needs values."""
    try:
        results = subject.reference(on_meta(subject.signature, case.values))
    except Exception:
        return None
    return max((result.numel() for result in results), default=0)


def _on_cpu(case: Case) -> list[torch.Tensor | None]:
    return [None if tensor is None else _moved(tensor) for tensor in flatten(case.arguments, case.values)]


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """A GPU's half types as float32: torch lacks some functions for them on the CPU."""
    if tensor.device.type == "cpu":
        return tensor
    return tensor.to("cpu", torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype)


def work(subject: Subject, case: Case) -> int:
    """How many operators the reference calls."""
    return operators(lambda: subject.reference(case.values))


def operators(function: Callable[[], object]) -> int:
    """How many operators a call of the function runs."""
    counting = _Counting()
    with counting:
        function()
    return counting.count


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # asking dynamo to skip this would import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))
