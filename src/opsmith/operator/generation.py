"""The interface between an op and the generator that makes kernels from its reference.

An op *has* a generation, or none. Everything else about the op is the same: its families of operators, the kernels
that its author registers, the choice made by `using`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..reference.forms import Plain, Reference
from ..reference.signature import Signature

if TYPE_CHECKING:
    from .family import Family


class Generation(Protocol):
    """What is generated from one op's reference."""

    @property
    def plain(self) -> Plain:
        """The reference, with the layout rule that generated kernels follow."""

    def functional(self, name: str) -> Plain:
        """The reference of an in-place op as a function that returns new tensors."""

    def backwards(self, source: Plain, name: str) -> tuple[Reference, Reference]:
        """The references of the first and the second backward operator."""

    def complete(self, family: Family, kernels: bool) -> None:
        """Adds to a family whose operators exist what only a generator can derive, and generated kernels if wanted."""

    def emulate(self, family: Family) -> None:
        """Gives the family's CPU operators the generated CUDA kernels, run by the emulator."""

    def source(self, device: str, values: Sequence[Any] | None, backward: bool, dtype: torch.dtype) -> str:
        """The generated source for a call with these arguments; None for contiguous tensors of one shape."""


Generator = Callable[[str, Callable[..., Any], Signature], Generation]
"""(op name, reference, signature) -> Generation."""


class SymbolicCall(Protocol):
    """A second way to call a family while torch.compile traces it with floats that are symbols."""

    def takes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool: ...

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any: ...
