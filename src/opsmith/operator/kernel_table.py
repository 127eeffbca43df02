"""The kernels that authors have registered for an op, and which of them a choice of `using` runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .family import Registered

DEVICES = ("cpu", "cuda")
DIRECTIONS = ("forward", "backward")
DEFAULT = "default"
REFERENCE = "reference"
TAKEN = (DEFAULT, REFERENCE, "opsmith", "eager", "compile", "liger")
"""Names that are no kernel's: the last are what a benchmark calls others."""


class KernelTable:
    """By direction, device and name. `first_is_default`: without a kernel that has no name, the first with one is run;
    where kernels are generated, one with a name waits for `using`."""

    def __init__(self, first_is_default: bool = True) -> None:
        self._first_is_default = first_is_default
        self._kernels: dict[tuple[str, str, str], Registered] = {}

    def __iter__(self) -> Iterator[Registered]:
        return iter(self._kernels.values())

    def put(self, given: Registered) -> None:
        self._kernels[given.direction, given.device, given.name] = given

    def remove(self, given: Registered) -> None:
        del self._kernels[given.direction, given.device, given.name]

    def default_for(self, direction: str, device: str) -> Registered | None:
        unnamed = self._kernels.get((direction, device, DEFAULT))
        if unnamed or not self._first_is_default:
            return unnamed
        return next((each for each in self if (each.direction, each.device) == (direction, device)), None)

    def used_by(self, name: str, direction: str, device: str) -> Registered | None:
        """What `using(name)` runs: the kernel of that name, else the default."""
        if name == REFERENCE:
            return None
        return self._kernels.get((direction, device, name)) or self.default_for(direction, device)

    def chosen(self, name: str) -> list[Registered]:
        """Every kernel of a choice."""
        every = itertools.product(DIRECTIONS, DEVICES)
        return [given for direction, device in every if (given := self.used_by(name, direction, device))]
