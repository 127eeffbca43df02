"""The kernels that authors have registered for an op, and which of them a choice of `using` runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..kernels.kernel import DEFAULT
from .written import Registration

DEVICES = ("cpu", "cuda")
DIRECTIONS = ("forward", "backward")
REFERENCE = "reference"
TAKEN = (DEFAULT, REFERENCE, "opsmith", "eager", "compile", "liger")
"""Names that no kernel may have. The last four are other contenders in a benchmark."""


class KernelTable:
    """By direction, device and name. `first_is_default`: if every kernel has a name, the first one registered is the
    default. Not so where kernels are generated: then a named kernel only runs inside `using`."""

    def __init__(self, first_is_default: bool = True) -> None:
        self._first_is_default = first_is_default
        self._kernels: dict[tuple[str, str, str], Registration] = {}

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._kernels.values())

    def put(self, given: Registration) -> None:
        self._kernels[given.direction, given.device, given.name] = given

    def remove(self, given: Registration) -> None:
        del self._kernels[given.direction, given.device, given.name]

    def default_for(self, direction: str, device: str) -> Registration | None:
        unnamed = self._kernels.get((direction, device, DEFAULT))
        if unnamed or not self._first_is_default:
            return unnamed
        return next((each for each in self if (each.direction, each.device) == (direction, device)), None)

    def used_by(self, name: str, direction: str, device: str) -> Registration | None:
        """What `using(name)` runs: the kernel of that name, else the default."""
        if name == REFERENCE:
            return None
        return self._kernels.get((direction, device, name)) or self.default_for(direction, device)

    def chosen(self, name: str) -> list[Registration]:
        """Every kernel of a choice."""
        every = itertools.product(DIRECTIONS, DEVICES)
        return [given for direction, device in every if (given := self.used_by(name, direction, device))]
