"""What rows were measured on: the device, versions, the date, and the ceilings."""

from __future__ import annotations

import contextlib
import datetime
import platform
from typing import Any

import torch

from .. import __version__
from .ceilings import Ceilings


def environment(device: str, threads: int, found: Ceilings) -> dict[str, Any]:
    """What the rows were measured on."""
    about: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "kind": device,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "threads": threads if device == "cpu" else None,
        "ceilings": found.as_dict(),
    }
    return {**about, "opsmith": __version__}


def processor() -> str:
    """'AMD EPYC 9654 96-Core Processor'; 'x86_64' if the system does not report it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
