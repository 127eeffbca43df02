"""The kernels that a call runs, with their times, from torch's profiler."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
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


def kernels(workload: Workload, direction: str) -> list[KernelTime]:
    """The kernels (on a CPU, the operators) of one call of the op; the longest first."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise torch's profiler writes log lines into the output
    function = contender(workload.op, OPSMITH, workload.device.type)
    call = call_for(function, workload.values, workload.op.signature, direction)
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
    if on_gpu:
        times = own_times(
            (event.device_resource_id, event.name, event.time_range.start, event.time_range.end)
            for event in profile.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
        )
        found = [(name, count, us) for name, (count, us) in times.items()]
    else:
        averages = [event for event in profile.key_averages() if event.device_type == torch.autograd.DeviceType.CPU]
        found = [(event.key, event.count, event.self_cpu_time_total) for event in averages]
    total = sum(us for _, _, us in found) or 1.0
    rows = [KernelTime(name, count // CALLS or 1, us / CALLS, us / total) for name, count, us in found if us]
    return sorted(rows, key=lambda row: -row.us)


def own_times(spans: Iterable[tuple[int, str, float, float]]) -> dict[str, tuple[int, float]]:
    """{name: (launches, time)} from spans (stream, name, start, end). A launch may begin before the previous one on its
    stream ends, and wait: its own time starts at that end."""
    launches: Counter[str] = Counter()
    times: defaultdict[str, float] = defaultdict(float)
    ends: dict[int, float] = {}
    for stream, name, start, end in sorted(spans, key=lambda span: span[2]):
        launches[name] += 1
        times[name] += max(0.0, end - max(start, ends.get(stream, start)))
        ends[stream] = max(end, ends.get(stream, end))
    return {name: (count, times[name]) for name, count in launches.items()}
