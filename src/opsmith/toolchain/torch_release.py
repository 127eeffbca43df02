"""The oldest torch that opsmith works with."""

from __future__ import annotations

import re

from ..errors import TorchTooOldError

OLDEST = (2, 11)
"""The first whose stable ABI opsmith's libraries, and those of packages, are built for."""


def minor_release(version: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu"."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def require_torch() -> None:
    """Raises TorchTooOldError for a torch on which opsmith would fail later, in ways that do not say why."""
    import torch

    if minor_release(torch.__version__) < OLDEST:
        raise TorchTooOldError(torch.__version__, ".".join(map(str, OLDEST)))
