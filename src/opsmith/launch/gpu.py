"""A GPU in the numbers that launches are planned with."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU: its name, its architecture ("sm_90"), its multiprocessors, and the most shared memory of a block."""

    name: str
    arch: str
    multiprocessors: int
    shared_bytes: int


H200 = Gpu("H200", "sm_90", 132, 227 << 10)
