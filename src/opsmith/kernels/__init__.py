"""What a kernel can be written in. Here: the kernel itself, whatever its language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import described
from . import languages
from .deferred import Deferred
from .native import NativeFunction, NativeLibrary, NativeOperator

__all__ = ["Deferred", "Kernel", "NativeFunction", "NativeLibrary", "NativeOperator"]


@dataclass
class Kernel:
    """One acceleration of an operator on one device. `function` takes the operator's arguments in schema order.

    A C++ kernel has `native`, the private `operator` it is entered through (None until its library is built), and
    `positions`, the arguments it takes where it does not take all. A backward kernel has `saves`, the names of what it
    needs of the forward; a generated one has `saves_by_class`, which also tells by dtypes (tensors.dtype_class), and
    every input for a class not named; and `handed_on`, for each tensor the result whose gradient is that tensor's too,
    as it is (where shape, dtype and device are the same), or None. `statics` is a generated kernel's: which arguments
    are compiled in by their values. `author` is the function its author gave, and `traced` the one that torch.compile
    runs to see the Triton kernels in it, where they are inline."""

    name: str
    device: str
    function: Callable[..., Any]
    layout: str = "contiguous"
    native: NativeFunction | None = None
    operator: NativeOperator | None = None
    positions: tuple[int, ...] | None = None
    saves: tuple[str, ...] | None = None
    saves_by_class: dict[str, tuple[str, ...]] | None = None
    handed_on: tuple[int | None, ...] | None = None
    statics: tuple[bool, ...] | None = None
    author: Callable[..., Any] | None = None
    traced: Callable[..., Any] | None = None
    checked: bool = field(default=False, compare=False)

    @property
    def is_default(self) -> bool:
        """Whether it has no name of its own, by which `using` would ask for it."""
        return self.name == "default"

    @property
    def language(self) -> str:
        """'Triton', 'Numba', 'C++' and so on: what the kernel is written in."""
        if self.native is not None:
            return "C++"
        if self.statics is not None:
            return "CUDA C++" if self.device == "cuda" else "C++"
        return languages.name_of(self.author or self.function)

    @property
    def origin(self) -> str:
        """Where the kernel comes from, in words."""
        if self.native is not None:
            return str(self.native)
        if self.statics is not None:
            return described(self.function)
        author = self.author or self.function
        told = str(author) if isinstance(author, Deferred) else described(author)
        language = self.language
        return f"{language} {told}" + ("" if language == languages.PYTHON else ", launched from Python")

    def __str__(self) -> str:
        return f"{self.name!r} on {self.device}, {self.origin}"
