"""Which calls the reference accepts: only those are valid calls of the op. And how many operators it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...reference.tensors import on_meta
from .. import values as call_values
from .case import Case

if TYPE_CHECKING:
    from ..subject import Subject

LARGE = 1 << 24
"""The most elements in a result of a generated call: small tensors may broadcast to a large one."""


def taken(subject: Subject, case: Case) -> bool:
    """Whether the reference accepts a call. Runs on the CPU: on a GPU, an index out of range would destroy the
    context."""
    return (largest_result(subject, case) or 0) <= max(LARGE, 2 * case.numel) and _results(subject, case) is not None


def finite(subject: Subject, case: Case) -> bool:
    """Whether the reference accepts a call and all its floating results are finite numbers."""
    results = _results(subject, case)
    if results is None:
        return False
    return all(bool(result.isfinite().all()) for result in results if result.is_floating_point())


def largest_result(subject: Subject, case: Case) -> int | None:
    """Elements of the largest result, from meta tensors; None where the reference needs values."""
    try:
        results = subject.reference(on_meta(subject.signature, case.values))
    except Exception:
        return None
    return max((result.numel() for result in results), default=0)


def _results(subject: Subject, case: Case) -> list[torch.Tensor] | None:
    try:
        return subject.reference(call_values.mapped(case.arguments, case.values, _on_cpu))
    except Exception:
        return None


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A GPU's half types as float32: torch lacks some functions for them on the CPU."""
    if tensor.device.type == "cpu":
        return tensor
    return tensor.to("cpu", torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype)


def work(subject: Subject, case: Case) -> int:
    """The number of operators that the reference calls."""
    counting = _Counting()
    with counting:
        subject.reference(case.values)
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
