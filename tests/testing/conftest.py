"""The user's cache for the processes that pytester starts in another home directory. With an empty one, each of them
builds the launch planner, the emulator and the C++ runtime."""

from __future__ import annotations

import pytest

from opsmith.toolchain import cache_directory

CACHE = str(cache_directory())


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", CACHE)
