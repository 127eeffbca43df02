"""A library of kernels compiled for the emulator, and the runtime that they call."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..kernels.cuda_source.types import DeviceType, Variable, described_types, template_arguments
from ..toolchain import compile_shared_library, elf, load_library
from ..toolchain.elf import demangled
from . import entries, shared_memory
from .assembly import NATIVE
from .structures import CONSTANT, DEVICE, IGNORED, SHARED, Region, array

_START_UP = ("completed.0", "__dso_handle")  # variables of the compiler's own start-up code


@functools.cache
def runtime() -> ctypes.CDLL:
    """The emulator's runtime, built on first use."""
    native = load_library(runtime_path())
    native.opsmith_begin.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double)
    native.opsmith_await.argtypes = (ctypes.c_void_p, ctypes.c_double)
    native.opsmith_printed.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    native.opsmith_printed.restype = ctypes.c_void_p
    return native


def digest() -> str:
    """The identity of the runtime that a library is compiled for."""
    contents = b"".join(path.read_bytes() for path in sorted(NATIVE.iterdir()))
    return hashlib.sha256(contents).hexdigest()[:16]


@functools.cache
def runtime_path() -> Path:
    return compile_shared_library(
        "opsmith_emulator",
        [NATIVE / "runtime.cpp"],
        abi="plain",
        extra_cflags=("-g", "-pthread", "-ftls-model=initial-exec"),
        # Libraries of kernels find it in the process by this name, so another build of it needs another name.
        extra_ldflags=(f"-Wl,-soname,libopsmith_emulator_{digest()}.so",),
        label="opsmith's CUDA emulator",
    )


class Library:
    """A compiled library: its kernels by their spelling."""

    def __init__(
        self,
        path: Path,
        spellings: tuple[str, ...],
        constants: tuple[str, ...],
        dynamic_names: tuple[str, ...],
        author_files: frozenset[str] = frozenset(),
    ) -> None:
        """`author_files` are preferred for the line of a fault, where they are known."""
        self.path, self.spellings, self.dynamic_names, self.author_files = path, spellings, dynamic_names, author_files
        runtime()  # the library finds it in the process, by its name
        self.handle = load_library(path)
        image = path.read_bytes()
        sections, symbols = elf.read(image)
        self.marker = self._address("opsmith_shared_marker")
        self.base = self.marker - next(each.value for each in symbols if each.name == "opsmith_shared_marker")
        self.names: list[str] = []
        self.functions = {self.base + each.value: each.name for each in symbols if each.kind == elf.FUNCTION}
        shared = self._shared(symbols)
        self.shared, self.shared_count = array(Region, shared), len(shared)
        self._uses = shared_memory.read(image, sections)
        self._sizes = {each.name: each.size for each in symbols if each.kind == elf.THREAD_LOCAL}
        self._static_shared: dict[int, dict[str, int]] = {}
        # The compiler's messages, by the spellings of kernels that it has not found.
        self.refusals = {name: text.decode() for name, text in self._values("refusal", ctypes.c_char_p).items()}
        # The threads that __launch_bounds__ allow, by the addresses of kernels' entries.
        self.launch_bounds = {self.entry(name): bound for name, bound in self._values("bound", ctypes.c_long).items()}
        # The blocks of a cluster by __cluster_dims__, likewise.
        self.clusters = {
            self.entry(name): (packed & 0xFFFF, packed >> 16 & 0xFFFF, packed >> 32)
            for name, packed in self._values("cluster", ctypes.c_long).items()
        }
        self.variables = self._variables(sections, symbols)
        # A constant inside an #if may not exist.
        self.constants = {
            name: self._constant(name, number)
            for number, name in enumerate(constants)
            if hasattr(self.handle, f"opsmith_constant_{number}")
        }
        # Sources with the same text share the library, and each has its own values of the constants.
        self.initial = {name: ctypes.string_at(at, kept.size) for name, (at, kept) in self.constants.items()}

    def entry(self, spelling: str) -> int:
        return self._address(f"opsmith_enter_{self.spellings.index(spelling)}")

    def types(self, spelling: str) -> list[DeviceType]:
        """The types of a kernel's parameters."""
        signature = self._value(f"opsmith_signature_{self.spellings.index(spelling)}", ctypes.c_char_p)
        return described_types(demangled(signature.decode()))

    def static_shared(self, entry: int) -> dict[str, int]:
        """The bytes of the static __shared__ variables that a kernel uses, by their names."""
        if entry not in self._static_shared:
            names = self._uses.get(self.functions.get(entry, ""), set())
            self._static_shared[entry] = {
                _readable(name): self._sizes[name] for name in names if name in self._sizes and self._is_shared(name)
            }
        return self._static_shared[entry]

    def _address(self, function: str) -> int:
        return ctypes.cast(getattr(self.handle, function), ctypes.c_void_p).value or 0

    def _value(self, function: str, kind: type[Any]) -> Any:
        """What a function without parameters returns."""
        call = getattr(self.handle, function)
        call.restype = kind
        return call()

    def _values(self, what: str, kind: type[Any]) -> dict[str, Any]:
        """What the functions opsmith_<what>_<number> return, by the spellings of the kernels that have one."""
        names = {spelling: f"opsmith_{what}_{number}" for number, spelling in enumerate(self.spellings)}
        return {each: self._value(name, kind) for each, name in names.items() if hasattr(self.handle, name)}

    def _constant(self, name: str, number: int) -> tuple[int, Variable]:
        """The address of a __constant__ variable, and its type."""
        kinds = {"": ctypes.c_void_p, "_bytes": ctypes.c_ulong, "_type": ctypes.c_char_p}
        address, size, kind = (self._value(f"opsmith_constant{part}_{number}", each) for part, each in kinds.items())
        (element,) = template_arguments(demangled(kind.decode()))
        return address, Variable(name, element, size)

    def _is_shared(self, symbol: str) -> bool:
        """Whether a thread-local variable is a __shared__ one of the author's: not the marker of their place, a pointer
        to the dynamic shared memory, declared at file scope, or the guard of its initialisation. _ZZ is a variable of a
        function."""
        if entries.MARKER in symbol or symbol == "__tls_guard":
            return False
        return symbol.startswith("_ZZ") or _readable(symbol) not in self.dynamic_names

    def _shared(self, symbols: Sequence[elf.Symbol]) -> list[Region]:
        """Static __shared__ variables, relative to the marker."""
        thread_local = {each.name: each for each in symbols if each.kind == elf.THREAD_LOCAL}
        marker = next(each.value for name, each in thread_local.items() if entries.MARKER in name)
        found = []
        for name, each in thread_local.items():
            if entries.MARKER in name or not each.size:
                continue
            begin, end = (each.value - marker) % 2**64, (each.value + each.size - marker) % 2**64
            found.append(Region(begin, end, SHARED if self._is_shared(name) else IGNORED, self._numbered(name)))
        return found

    def _variables(self, sections: Sequence[elf.Section], symbols: Sequence[elf.Symbol]) -> list[Region]:
        """Variables at file scope, and what the compiler has put into read-only sections."""
        found = [
            self._region(each.address, each.size, CONSTANT, "the compiler's constants")
            for each in sections
            if each.is_constant and each.name.startswith(".rodata")
        ]
        for each in symbols:
            if each.kind != elf.OBJECT or not each.size or each.name in _START_UP:
                continue
            if not each.section.startswith((".rodata", ".tbss", ".tdata")):
                kind = CONSTANT if each.section.startswith("opsmith_constant") else DEVICE
                found.append(self._region(each.value, each.size, kind, each.name))
        return found

    def _region(self, offset: int, size: int, kind: int, name: str) -> Region:
        begin = self.base + offset
        return Region(begin, begin + size, kind, self._numbered(name))

    def _numbered(self, name: str) -> int:
        self.names.append(_readable(name))
        return len(self.names) - 1


def _readable(symbol: str) -> str:
    """'reverse<float, 64>(...)::tile' as 'tile': a variable's own name."""
    if not symbol.startswith("_Z"):
        return symbol
    return demangled(symbol).rpartition("::")[2]
