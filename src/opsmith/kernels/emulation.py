"""Whether this thread runs GPU kernels on the CPU, and how: `opsmith.emulate` sets it and every launch checks it."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..launch.gpu import H200, Gpu

if TYPE_CHECKING:
    from .cuda_source.launch import Launch
    from .cuda_source.plan import Plan
    from .cuda_source.source import CudaSource
    from .extension import ExtensionFunction
    from .native import NativeFunction

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Settings:
    """`checks`: every access to memory is checked against the launch's tensors. `seed`: the blocks of a grid run in an
    order drawn from it, since a GPU promises none; None for the order of their numbers. `seconds`: after this time a
    launch of CUDA C++ counts as hanging. `gpu`: what `gpu_of` a CPU tensor is."""

    checks: bool = True
    seed: int | None = 0
    seconds: float = 60.0
    gpu: Gpu = H200

    def order(self, grid: Grid) -> list[Grid]:
        """The blocks of a grid, as (x, y, z), in the order in which they are to run."""
        blocks = [(x, y, z) for z, y, x in itertools.product(*map(range, reversed(grid)))]
        if self.seed is not None:
            random.Random(self.seed).shuffle(blocks)
        return blocks


class CudaEmulator(NamedTuple):
    """What runs CUDA C++ on the CPU."""

    launch: Callable[[Launch, Sequence[Any]], None]  # a launch of a kernel of a CudaSource
    set_constant: Callable[[CudaSource, str, Any], None]  # the value of a __constant__ variable
    function: Callable[[ExtensionFunction], NativeFunction]  # one that launches CUDA C++, for CPU tensors
    plan: Callable[[CudaSource, str], Plan | None]  # of a kernel that C++ launches by name; None: it is not launched


cuda_emulator: Callable[[], CudaEmulator]
"""Set by opsmith.emulator, which this package does not depend on: nothing is emulated before that is imported."""


class _State(threading.local):
    """Set on the instance, for dynamo guards on an instance's attribute and not on a class's."""

    def __init__(self) -> None:
        self.active = False
        self.settings = Settings()


state = _State()


@contextlib.contextmanager
def entered(settings: Settings) -> Iterator[None]:
    """Inside, this thread emulates."""
    before = state.active, state.settings
    state.active, state.settings = True, settings
    try:
        yield
    finally:
        state.active, state.settings = before
