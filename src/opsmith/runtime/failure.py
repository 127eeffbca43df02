"""Remembers in the cache that the C++ runtime's build failed, so that not every process tries again."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import torch

from ..errors import OpsmithError
from ..toolchain import cache_directory

_DAY = 24 * 3600.0


def note(message: str) -> None:
    with contextlib.suppress(OSError, OpsmithError):
        _path().write_text(message)


def today() -> str | None:
    """The failed build's message, if it is less than a day old and of this torch."""
    with contextlib.suppress(OSError, OpsmithError):
        path = _path()
        if time.time() - path.stat().st_mtime < _DAY:
            return path.read_text().splitlines()[0]
    return None


def forget() -> None:
    with contextlib.suppress(OSError, OpsmithError):
        _path().unlink()


def _path() -> Path:
    return cache_directory() / f"runtime-failed-torch-{torch.__version__}"
