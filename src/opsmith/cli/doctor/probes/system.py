"""Probes: the operating system, and the Python that runs opsmith."""

from __future__ import annotations

import platform
import sys

from ..._screen import tilde
from ..finding import Finding

OLDEST_PYTHON = (3, 10)
MACHINES = ("x86_64", "aarch64")


def system() -> Finding:
    what = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if sys.platform != "linux":
        return Finding("broken", f"{what}: opsmith is for Linux with NVIDIA GPUs")
    if platform.machine() not in MACHINES:
        return Finding("broken", f"{what}: torch and CUDA are built for {' and '.join(MACHINES)}")
    return Finding("ok", what)


def python() -> Finding:
    what = f"{platform.python_version()} ({tilde(sys.executable)})"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("broken", what)
    return Finding("ok", what)
