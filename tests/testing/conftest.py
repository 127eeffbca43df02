"""The user's cache for the processes that pytester starts, which have another home directory: an empty one costs each of
them a build of the launch planner, the emulator and the C++ runtime."""

from __future__ import annotations

import pytest

from opsmith.toolchain import cache_directory

CACHE = str(cache_directory())


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", CACHE)
