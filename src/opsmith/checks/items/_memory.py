"""How much memory is available."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_CGROUP = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self")


def free_bytes(device: str) -> int:
    """Of the GPU, or of this machine and of what this process may have of it."""
    if device == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])
    return min(_of_machine(), _of_group())


def growth(function: Callable[[], Any]) -> int:
    """Bytes by which this process grows at most during a call, whoever asks for them: a kernel in C++ may have memory
    of its own. Zero where the system does not report it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is free already would be taken first
        (_SELF / "clear_refs").write_text("5")  # resets the peak
        before = _status("VmRSS")
        function()
        return max(0, _status("VmHWM") - before)
    return 0


def _status(name: str) -> int:
    lines = dict(line.split(":", 1) for line in (_SELF / "status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def gibibytes(count: float) -> str:
    return f"{count / 2**30:.1f}"


def _of_machine() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _of_group() -> int:
    """A container may be given less than there is."""
    try:
        limit, used = (_CGROUP / "memory.max").read_text().strip(), (_CGROUP / "memory.current").read_text()
        cached = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return 1 << 62 if limit == "max" else int(limit) - int(used) + int(cached.get("inactive_file", 0))
    except (OSError, ValueError):
        return 1 << 62
