"""What opsmith's own wheel contains in addition to the kernels of its ops: the launch planner, and the C++ runtime for
every release of torch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from ..launch import planner
from ..runtime import native
from .recording import Recording
from .torch_headers import Release, unpacked

NAME = "opsmith"


def record(releases: Sequence[Release]) -> Recording:
    found = Recording(NAME)
    found.add("any", "opsmith_planner", "planner", planner.build)
    for release in releases:
        build = functools.partial(_runtime, release)
        found.add(f"torch {release.minor}", "opsmith_runtime", f"runtime {release.minor}", build)
    return found


def _runtime(release: Release) -> Path:
    with unpacked(release) as include:
        return native.build_for(release.minor, include)
