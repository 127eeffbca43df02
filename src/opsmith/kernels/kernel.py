"""A kernel of an operator, as one of three types: written in Python, a native function, or generated.

All three have a `function`, which takes the operator's arguments in schema order. A Python function may launch kernels
in any language; a native function is C++ that the dispatcher calls without Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import described
from ..reference.signature import Signature
from . import languages
from .languages import Deferred
from .native import NativeFunction, NativeOperator

DEFAULT = "default"


class Kernel:
    """What the three types have in common."""

    function: Callable[..., Any]
    author: Any = None  # the function that the author wrote in Python
    passthrough: tuple[int | None, ...] | None = None
    """Of a backward kernel: for each tensor the result whose gradient is also that tensor's gradient, unchanged, where
    shape, dtype and device are the same; else None."""

    def __init__(self, name: str, device: str, layout: str, *, checked: bool = False) -> None:
        self.name = name
        self.device = device
        self.layout = layout  # "contiguous" or "strided": how tensors must arrive
        self.checked = checked  # whether its first results have been compared with the fake

    @property
    def is_default(self) -> bool:
        """Whether it runs without being chosen by `using`."""
        return self.name == DEFAULT

    def saves_for(self, dtype_class: str) -> tuple[str, ...] | None:
        """Of a backward kernel: the arguments and results that must be saved for it, in a call with tensors of this
        dtype class (reference.tensors.dtype_class). None: every input."""
        raise NotImplementedError

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


class PythonKernel(Kernel):
    """A Python function, which may launch Triton, Numba or CUDA C++ kernels."""

    def __init__(
        self,
        name: str,
        device: str,
        layout: str,
        function: Callable[..., Any],
        author: Callable[..., Any],
        *,
        traced: Callable[..., Any] | None = None,
        saves: tuple[str, ...] | None = None,
    ) -> None:
        """`author` is the function that the author gave. `traced`: with inline=True, the function that torch.compile
        traces to see the Triton kernels in it."""
        super().__init__(name, device, layout)
        self.function = function
        self.author = author
        self.traced = traced
        self.saves = saves

    def saves_for(self, dtype_class: str) -> tuple[str, ...] | None:
        return self.saves

    @property
    def language(self) -> str:
        return languages.name_of(self.author)

    @property
    def origin(self) -> str:
        author = str(self.author) if isinstance(self.author, Deferred) else described(self.author)
        launched = "" if self.language == languages.PYTHON else ", launched from Python"
        return f"{self.language} {author}{launched}"


class NativeKernel(Kernel):
    """A C++ function on torch's stable ABI, called through a private operator."""

    language = "C++"

    def __init__(
        self,
        name: str,
        device: str,
        layout: str,
        native: NativeFunction,
        signature: Signature,
        *,
        positions: tuple[int, ...] | None = None,
        saves: tuple[str, ...] | None = None,
    ) -> None:
        """`signature` is the C++ function's. `positions` are those of its arguments among the operator's, where it does
        not take all of them."""
        super().__init__(name, device, layout)
        self.native = native
        self.positions = positions
        self.saves = saves
        self.operator: NativeOperator | None = None  # None until the library is built
        self._signature = signature
        self._lock = threading.Lock()
        # A library that is not built yet is built by the first call, which goes through Python: it is checked.
        self.function = lambda *args: self._registered()(*args)
        if native.ready:
            self._registered()

    def _registered(self) -> Callable[..., Any]:
        with self._lock:
            if self.operator is None:
                self.operator = operator = self.native.as_operator(self._signature.schema)
                self.function = operator.call
                if (positions := self.positions) is not None:
                    self.function = lambda *args: operator.call(*[args[position] for position in positions])
        return self.function

    def saves_for(self, dtype_class: str) -> tuple[str, ...] | None:
        return self.saves

    @property
    def origin(self) -> str:
        return str(self.native)


class GeneratedKernel(Kernel):
    """A kernel that opsmith wrote from the reference."""

    def __init__(
        self,
        device: str,
        function: Callable[..., Any],
        statics: tuple[bool, ...] | None,
        *,
        saves: Mapping[str, tuple[str, ...]] | None = None,
        passthrough: tuple[int | None, ...] | None = None,
    ) -> None:
        """`statics`: for each argument, whether its value is compiled in; None for a kernel that only Python launches.
        `saves`, of a backward kernel, is by dtype class."""
        super().__init__(DEFAULT, device, "strided", checked=True)
        self.function = function
        self.statics = statics
        self.saves = saves
        self.passthrough = passthrough

    def saves_for(self, dtype_class: str) -> tuple[str, ...] | None:
        return None if self.saves is None else self.saves.get(dtype_class)

    @property
    def language(self) -> str:
        return "CUDA C++" if self.device == "cuda" else "C++"

    @property
    def origin(self) -> str:
        return described(self.function)
