"""The pytest plug-in of opsmith: a fixture. Every pytest run loads it, so it imports little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..kernels.emulation import Settings


@pytest.fixture
def opsmith_emulate(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Runs CUDA kernels on the CPU with every access checked: the test runs inside opsmith.emulate(seed=0).

    The seed determines the order of threads and blocks; to try several:

        @pytest.mark.parametrize("opsmith_emulate", range(10), indirect=True)
    """
    from ..emulator import emulate
    from ..kernels.emulation import state

    seed = getattr(request, "param", 0)
    if seed is not None and not isinstance(seed, int):
        raise pytest.UsageError(f"the fixture opsmith_emulate takes a seed, a number or None, not {seed!r}")
    with emulate(checks=True, seed=seed):
        yield state.settings
