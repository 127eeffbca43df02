"""What a kernel can be written in. Here: the kernel itself, whatever its language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import described
from .native import NativeFunction, NativeLibrary, NativeOperator

__all__ = ["Kernel", "NativeFunction", "NativeLibrary", "NativeOperator"]


@dataclass
class Kernel:
    """One acceleration of an operator on one device. `function` takes the operator's arguments in schema order.

    A C++ kernel has `native`, the private `operator` it is entered through, and `positions`, the arguments it takes
    where it does not take all. A backward kernel has `saves`, the names of what it needs of the forward; a generated
    one has `saves_by_class`, which also tells by dtypes (tensors.dtype_class), and every input for a class not named.
    `statics` is a generated kernel's: which arguments are compiled in by their values."""

    name: str
    device: str
    function: Callable[..., Any]
    layout: str = "contiguous"
    native: NativeFunction | None = None
    operator: NativeOperator | None = None
    positions: tuple[int, ...] | None = None
    saves: tuple[str, ...] | None = None
    saves_by_class: dict[str, tuple[str, ...]] | None = None
    statics: tuple[bool, ...] | None = None
    checked: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        origin = str(self.native) if self.native is not None else described(self.function)
        return f"{self.name!r} on {self.device}, {origin}"
