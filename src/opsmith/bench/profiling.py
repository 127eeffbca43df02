"""Which kernels a call runs, and how long each takes: torch's profiler, read for one op."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .contenders import OPSMITH, contender
from .workload import Workload, call_for

CALLS = 10


@dataclass(frozen=True)
class KernelTime:
    name: str
    calls: int
    us: float  # a call of the op
    share: float


def kernels(workload: Workload, direction: str, name: str = OPSMITH) -> list[KernelTime]:
    """The GPU's kernels, or on a CPU the operators, of one call; the longest first."""
    call = call_for(
        contender(workload.op, name, workload.device.type), workload.values, workload.op.signature, direction
    )
    on_gpu = workload.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    for _ in range(3):
        call()
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(CALLS):
            call()
        if on_gpu:
            torch.cuda.synchronize()
    found: list[tuple[str, int, float]] = []
    for event in profile.key_averages():
        is_kernel = event.device_type == torch.autograd.DeviceType.CUDA
        if is_kernel != on_gpu:
            continue
        taken = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if taken:
            found.append((event.key, event.count // CALLS or 1, taken / CALLS))
    total = sum(us for _, _, us in found) or 1.0
    rows = [KernelTime(key, count, us, us / total) for key, count, us in found]
    return sorted(rows, key=lambda row: -row.us)
