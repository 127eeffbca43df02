"""The C++ runtime: an operator attached to the dispatcher by the functions of native/runtime.cpp."""

from __future__ import annotations

import contextlib
import ctypes
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import DispatcherError, OpsmithError, RuntimeReleaseError
from ..kernels import GeneratedKernel, Kernel, NativeKernel
from ..launch.planner import row
from ..reference.signature import Kind
from ..reference.tensors import DTYPE_CLASSES, scalar_type
from ..toolchain import cache_directory, compile_shared_library, find_shared_library, load_library
from ..toolchain.cache import OWN_PREBUILT
from ..toolchain.compile import release_settings

if TYPE_CHECKING:
    from .operator import Operator

SOURCE = Path(__file__).parent / "native" / "runtime.cpp"
_LETTERS = {
    Kind.TENSOR: "t",
    Kind.OPTIONAL_TENSOR: "o",
    Kind.TENSOR_LIST: "l",
    Kind.OPTIONAL_TENSOR_LIST: "p",
    Kind.VALUE: "v",
}
SLOTS = {"cpu": 0, "cuda": 1}
_CASTS = {"keep": 0, "lower": 1}
_DAY = 24 * 3600.0

# -O2: the work is calls into torch, and -O3 only lengthens the build.
_RECIPE: dict[str, Any] = {"extra_cflags": ("-O2",), "label": "opsmith's C++ runtime"}
_NAME = "opsmith_runtime"


def build() -> Path:
    """The library for the installed torch, compiled if the cache has none (about 15 s)."""
    return compile_shared_library(_NAME, [SOURCE], abi="torch", **_RECIPE)


def build_for(release: str, include: Path) -> Path:
    """The library for a minor release of torch, "2.13", with the headers in `include`: any patch of it can use it."""
    return compile_shared_library(_NAME, [SOURCE], abi=release_settings(release, include), **_RECIPE)


def find() -> Path | None:
    """The library for the installed torch: built for exactly this one, or prebuilt for its minor release."""
    return find_shared_library(_NAME, [SOURCE], abi="torch", **_RECIPE) or find_prebuilt()


def find_prebuilt() -> Path | None:
    return find_shared_library(_NAME, [SOURCE], abi=release_settings(torch_release()), **_RECIPE)


def torch_release() -> str:
    """ "2.13" of "2.13.0+cpu"."""
    return ".".join(torch.__version__.split(".")[:2])


def releases_prebuilt() -> list[str]:
    """The minor releases of torch that this installation of opsmith brings the library for: none from source."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads((OWN_PREBUILT / "manifest.json").read_text())
        return [row["place"].removeprefix("torch ") for row in facts["kernels"] if row["label"] == _NAME]
    return []


def record_failure(message: str) -> None:
    """Remembers in the cache that the build failed, so that not every process tries again."""
    with contextlib.suppress(OSError, OpsmithError):
        _failure_file().write_text(message)


def recent_failure() -> str | None:
    """The message of a build that failed less than a day ago, for this torch."""
    with contextlib.suppress(OSError, OpsmithError):
        file = _failure_file()
        if time.time() - file.stat().st_mtime < _DAY:
            return file.read_text().splitlines()[0]
    return None


def forget_failure() -> None:
    with contextlib.suppress(OSError, OpsmithError):
        _failure_file().unlink()


def _failure_file() -> Path:
    return cache_directory() / f"runtime-failed-torch-{torch.__version__}"


class Library:
    """The loaded library, its functions typed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._functions = load_library(path)
        text, size, handle, flag = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_bool
        number, numbers = ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
        self._functions.opsmith_torch_release.restype = text
        if (built_for := self._functions.opsmith_torch_release().decode()) != torch_release():
            raise RuntimeReleaseError(path, built_for, torch_release())
        for name, result, *arguments in (
            ("last_error", text),
            ("attach", handle, text, text, text, text, flag),
            ("detach", None, handle),
            ("set_backward", flag, handle, text),
            ("set_saves", flag, handle, size, text, text, text),
            ("set_saves_suffice", flag, handle, flag),
            ("enter", flag, handle, size),
            ("set_kernel", flag, handle, size, text, ctypes.POINTER(size), size, flag, flag, flag),
            ("attach_autocast", flag, handle, size),
            ("set_autocast", flag, handle, size, ctypes.c_int, ctypes.c_int),
            ("enter_generated", flag, handle, size, text),
            ("set_generated", flag, handle, size, flag),
            ("is_pending", number, handle, size),
            ("publish_program", flag, handle, size, ctypes.c_uint64, numbers, size),
            ("publish_kernel", flag, handle, size, ctypes.c_uint64, text, size, handle, *[number] * 4),
            ("publish_combine", flag, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, handle),
            ("publish_tuning", flag, handle),
            ("publish_gpu", flag, size, number, number, flag),
        ):
            function = getattr(self._functions, f"opsmith_{name}")
            function.restype, function.argtypes = result, arguments

    def call(self, name: str, *arguments: Any) -> Any:
        encoded = [argument.encode() if isinstance(argument, str) else argument for argument in arguments]
        result = getattr(self._functions, f"opsmith_{name}")(*encoded)
        if (result is None and name == "attach") or result is False:
            message = self._functions.opsmith_last_error().decode()
            raise DispatcherError(f"opsmith_{name}", what=f"the C++ runtime refused: {message}")
        return result


class Attachment:
    tier = "native"

    def __init__(self, operator: Operator, library: Library) -> None:
        self._operator = operator
        self.call = operator.call
        self._library = library
        self._entered: set[str] = set()
        self._generated: dict[str, bool] = {}  # by device: whether the generated kernels run
        self._programs: dict[int, tuple[Any, set[Any]]] = {}  # those that C++ knows, by identity
        # The last settings sent to C++: a graph compares the saves it was recorded with by identity.
        self._sent: dict[Any, Any] = {}
        # Every C++ kernel that was sent to C++: another thread may be in one that is replaced.
        self._operators: list[Any] = []
        self._autocast: set[str] = set()
        bind, arguments = operator.signature.bind, operator.signature.arguments
        # C++ calls the reference through this key, which no tensor has (record.h).
        operator.library.impl(operator.base, lambda *args, **kwargs: operator.open(*bind(args, kwargs)), "PrivateUse3")
        self._handle = library.call(
            "attach",
            operator.name,
            "".join(_LETTERS[argument.kind] for argument in arguments),
            "".join("01"[argument.mutated] for argument in arguments),
            "".join("01"[argument.name in operator.inert] for argument in arguments),
            operator.signature.returns_list,
        )
        self.update()

    def update(self) -> None:
        operator = self._operator
        if operator.closed:
            return
        if operator.backward is not None:
            self._set("set_backward", operator.backward.name)
            self._set("set_saves_suffice", operator.saves_suffice)
            for device in SLOTS:
                for position, label in enumerate(DTYPE_CLASSES):
                    self._update_saves(device, position, label)
        for device, kernel in operator.kernels.items():
            self._update_kernel(device, kernel)
        for device, policy in operator.autocast.items():
            self._update_autocast(device, policy)

    def _update_saves(self, device: str, position: int, label: str) -> None:
        names = self._operator.saved_names(device, label)
        if names is None:
            return
        signature = self._operator.signature
        arguments = "".join("01"[argument.name in names] for argument in signature.arguments)
        taken = {argument.name for argument in signature.arguments}
        kept = "".join("01"[name in names and name not in taken] for name in signature.result_names)
        passthrough = self._operator.passthrough(device) or ()
        places = "".join("-" if place is None else chr(ord("a") + place) for place in passthrough)
        self._set("set_saves", SLOTS[device] * len(DTYPE_CLASSES) + position, arguments, kept, places)

    def _set(self, name: str, *arguments: Any) -> None:
        """Sends a setting to C++, unless it is unchanged."""
        key = (name, arguments[0]) if len(arguments) > 1 else name
        if self._sent.get(key) != arguments:
            self._sent[key] = arguments
            self._library.call(name, self._handle, *arguments)

    def _update_kernel(self, device: str, kernel: Kernel) -> None:
        if isinstance(kernel, GeneratedKernel) and kernel.statics is not None:
            self._serve_generated(device, kernel.statics)
            return
        if self._generated.get(device):  # The author has written one.
            self._generated[device] = False
            self._library.call("set_generated", self._handle, SLOTS[device], False)
        if not isinstance(kernel, NativeKernel) or not kernel.native.entered_directly:
            if device in self._entered:  # A Python kernel has replaced a C++ kernel: back to Python.
                self._library.call("set_kernel", self._handle, SLOTS[device], None, None, 0, False, False, False)
            return
        if device not in self._entered:
            self._entered.add(device)
            self._library.call("enter", self._handle, SLOTS[device])
        if kernel.operator is not None and kernel.operator not in self._operators:
            self._operators.append(kernel.operator)
        positions = kernel.positions or ()
        array = (ctypes.c_size_t * len(positions))(*positions)
        name = kernel.operator.name if kernel.checked and kernel.operator is not None else None
        layout = kernel.layout == "contiguous", self._operator.reference.keeps_layout
        declines = kernel.operator is not None and kernel.operator.may_decline
        self._library.call("set_kernel", self._handle, SLOTS[device], name, array, len(positions), *layout, declines)

    def _serve_generated(self, device: str, statics: tuple[bool, ...]) -> None:
        if device not in self._entered:
            self._entered.add(device)
            self._library.call(
                "enter_generated", self._handle, SLOTS[device], "".join("01"[static] for static in statics)
            )
        elif not self._generated[device]:
            self._library.call("set_generated", self._handle, SLOTS[device], True)
        self._generated[device] = True

    def publish_generated(
        self,
        device: str,
        program: object,
        describe: Callable[[], Sequence[int]],
        kernels: Iterable[tuple[bytes, int, Sequence[int]]],
    ) -> None:
        """Sends C++ what ran the call that this thread is in: `program`, its row of numbers, and kernels as (layout
        class, address, tiles). Nothing is published for a call that C++ could never run."""
        slot, identity = SLOTS[device], id(program)
        if self._operator.closed or not self._generated.get(device):
            return
        if not self._library.call("is_pending", self._handle, slot):
            return
        known = self._programs.setdefault(identity, (program, set()))[1]
        numbers = row(describe())
        self._library.call("publish_program", self._handle, slot, identity, numbers, len(numbers))
        for layout, address, tiles in kernels:
            if (device, layout) not in known:
                self._library.call("publish_kernel", self._handle, slot, identity, layout, len(layout), address, *tiles)
                known.add((device, layout))

    def publish_shared(self, what: str, *arguments: Any) -> None:
        """Sends C++ what operators share: constants, GPUs, the kernels that combine partial sums."""
        self._library.call(f"publish_{what}", *arguments)

    def _update_autocast(self, device: str, policy: str | torch.dtype) -> None:
        if device not in self._autocast:
            self._autocast.add(device)
            self._library.call("attach_autocast", self._handle, SLOTS[device])
        dtype = torch.float32 if policy == "float32" else policy
        cast = _CASTS.get(str(policy), 2)
        number = scalar_type(dtype) if isinstance(dtype, torch.dtype) else 0
        self._library.call("set_autocast", self._handle, SLOTS[device], cast, number)

    def close(self) -> None:
        self._library.call("detach", self._handle)
