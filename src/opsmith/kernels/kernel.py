"""A kernel of an operator, as one of three types: written in Python, a native function, or generated.

All three have a `function`, which takes the operator's arguments in schema order. A Python function may launch kernels
in any language; a native function is C++ that the dispatcher calls without Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ..errors import described
from ..reference.signature import Signature
from . import languages
from .languages import Deferred
from .native import NativeFunction, NativeOperator

DEFAULT = "default"


@dataclass(eq=False, repr=False)
class Kernel:
    """What the three types have in common."""

    name: str
    device: str
    layout: str
    """How tensors must arrive: "contiguous" or "strided"."""
    function: Callable[..., Any] = field(init=False)
    _: KW_ONLY
    author: Any = None
    """The function that the author wrote in Python."""
    checked: bool = False
    """Whether its first results have been compared with the fake."""
    missed: bool = False
    """Whether a call has warned that it could not be compiled, and that the reference runs."""
    saves: tuple[str, ...] | dict[str, tuple[str, ...]] | None = None
    """Of a backward kernel: the arguments and results that must be saved for it, by dtype class where that matters
    (reference.tensors.dtype_class). None: every input."""
    passthrough: tuple[int | None, ...] | None = None
    """Of a backward kernel: for each tensor the result whose gradient is also that tensor's gradient, unchanged, where
    shape, dtype and device are the same; else None."""

    @property
    def is_default(self) -> bool:
        """Whether it runs without being chosen by `using`."""
        return self.name == DEFAULT

    def saves_for(self, dtype_class: str) -> tuple[str, ...] | None:
        """`saves` for a call with tensors of this dtype class."""
        return self.saves.get(dtype_class) if isinstance(self.saves, dict) else self.saves

    @property
    def module(self) -> str:
        """The module that it was written in; "" if that is not known."""
        return getattr(self.author, "__module__", None) or ""

    @property
    def language(self) -> str:
        """'Triton', 'Numba', 'C++' and so on."""
        raise NotImplementedError

    @property
    def origin(self) -> str:
        """Where the kernel comes from, as messages show it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name!r} on {self.device}, {self.origin}"


@dataclass(eq=False, repr=False)
class PythonKernel(Kernel):
    """A Python function, which may launch Triton, Numba or CUDA C++ kernels."""

    function: Callable[..., Any]
    _: KW_ONLY
    traced: Callable[..., Any] | None = None
    """With inline=True, the function that torch.compile traces to see the Triton kernels in it."""

    @property
    def language(self) -> str:
        return languages.name_of(self.author)

    @property
    def origin(self) -> str:
        author = str(self.author) if isinstance(self.author, Deferred) else described(self.author)
        launched = "" if self.language == languages.PYTHON else ", launched from Python"
        return f"{self.language} {author}{launched}"


@dataclass(eq=False, repr=False)
class NativeKernel(Kernel):
    """A C++ function on torch's stable ABI, called through a private operator."""

    native: NativeFunction
    signature: Signature
    """The C++ function's."""
    _: KW_ONLY
    positions: tuple[int, ...] | None = None
    """Those of its arguments among the operator's, where it does not take all of them."""

    language = "C++"

    def __post_init__(self) -> None:
        self.operator: NativeOperator | None = None  # None until the library is built
        self._lock = threading.Lock()
        # A library that is not built yet is built by the first call, which goes through Python: it is checked.
        self.function = lambda *args: self._registered()(*args)
        if self.native.ready:
            self._registered()

    def _registered(self) -> Callable[..., Any]:
        with self._lock:
            if self.operator is None:
                self.operator = operator = self.native.as_operator(self.signature.schema)
                self.function = operator.call
                if (positions := self.positions) is not None:
                    self.function = lambda *args: operator.call(*[args[position] for position in positions])
        return self.function

    @property
    def module(self) -> str:
        return self.native.module

    @property
    def origin(self) -> str:
        return str(self.native)


@dataclass(eq=False, repr=False)
class GeneratedKernel(Kernel):
    """A kernel that opsmith wrote from the reference."""

    function: Callable[..., Any]
    statics: tuple[bool, ...] | None
    """For each argument, whether its value is compiled in; None for a kernel that only Python launches."""

    @property
    def language(self) -> str:
        return "CUDA C++" if self.device == "cuda" else "C++"

    @property
    def origin(self) -> str:
        return described(self.function)
