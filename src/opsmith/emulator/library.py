"""A library of kernels compiled for the emulator, and the runtime that they call."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..kernels.cuda_source.signature import DeviceType, Variable, described_types, template_arguments
from ..toolchain import compile_shared_library, elf, load_library
from ..toolchain.demangle import demangled
from . import entries, shared_memory
from .assembly import NATIVE
from .structures import CONSTANT, DEVICE, IGNORED, SHARED, Region, array

_LINKED_IN = ("completed.0", "__dso_handle")  # what the compiler's own start-up code brings


@functools.cache
def runtime() -> ctypes.CDLL:
    """The emulator's runtime, built on first use."""
    return load_library(runtime_path())


def digest() -> str:
    """Of the runtime: what a library was compiled for."""
    contents = b"".join(path.read_bytes() for path in sorted(NATIVE.iterdir()))
    return hashlib.sha256(contents).hexdigest()[:16]


@functools.cache
def runtime_path() -> Path:
    return compile_shared_library(
        "opsmith_emulator",
        [NATIVE / "runtime.cpp"],
        abi="plain",
        extra_cflags=("-g", "-pthread", "-ftls-model=initial-exec"),
        # By this name a library of kernels finds it in the process: another build of it must have another.
        extra_ldflags=(f"-Wl,-soname,libopsmith_emulator_{digest()}.so",),
        label="opsmith's CUDA emulator",
    )


@dataclass
class Library:
    """A compiled library: its kernels by their spelling."""

    path: Path
    spellings: tuple[str, ...]
    constants: tuple[str, ...]
    dynamic_names: tuple[str, ...]
    author_files: frozenset[str] = frozenset()  # where they are known, a fault is told by their lines
    handle: ctypes.CDLL = field(init=False)

    def __post_init__(self) -> None:
        runtime()  # the library finds it in the process, by its name
        self.handle = load_library(self.path)
        sections, symbols = elf.read(self.path)
        self.marker = ctypes.cast(self.handle.opsmith_shared_marker, ctypes.c_void_p).value or 0
        self.base = self.marker - next(each.value for each in symbols if each.name == "opsmith_shared_marker")
        self.names: list[str] = []
        # One that stands inside an #if is not there.
        self._constants = {
            name: number
            for number, name in enumerate(self.constants)
            if hasattr(self.handle, f"opsmith_constant_{number}")
        }
        self.constants = tuple(self._constants)
        self.functions = {self.base + each.value: each.name for each in symbols if each.kind == elf.FUNCTION}
        shared = self._shared(symbols)
        self.shared, self.shared_count = array(Region, shared), len(shared)
        self._uses = shared_memory.read(self.path, sections)
        self._sizes = {each.name: each.size for each in symbols if each.kind == elf.THREAD_LOCAL}
        self._static_shared: dict[int, dict[str, int]] = {}
        self._refusals = {name: words.decode() for name, words in self._told("refusal", ctypes.c_char_p).items()}
        self._bounds = {self.entry(name): bound for name, bound in self._told("bound", ctypes.c_long).items()}
        self.variables = self._variables(sections, symbols)
        # Sources of one text share the library, and set its constants apart.
        self.initial = {
            name: ctypes.string_at(at, kept.size) for name in self.constants for at, kept in [self.constant(name)]
        }

    def entry(self, spelling: str) -> int:
        function = getattr(self.handle, f"opsmith_enter_{self.spellings.index(spelling)}")
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def types(self, spelling: str) -> list[DeviceType]:
        """The types of a kernel's parameters."""
        function = getattr(self.handle, f"opsmith_signature_{self.spellings.index(spelling)}")
        function.restype = ctypes.c_char_p
        return described_types(demangled(function().decode()))

    def refusal(self, spelling: str) -> str | None:
        """The compiler's words, where it has not found a kernel of that spelling."""
        return self._refusals.get(spelling)

    def launch_bound(self, entry: int) -> int | None:
        """The threads that the __launch_bounds__ of a kernel, by its entry's address, allow."""
        return self._bounds.get(entry)

    def static_shared(self, entry: int) -> dict[str, int]:
        """The bytes of the static __shared__ variables that a kernel uses, by their names."""
        if entry not in self._static_shared:
            names = self._uses.get(self.functions.get(entry, ""), set())
            self._static_shared[entry] = {
                _readable(name): self._sizes[name] for name in names if name in self._sizes and self._is_shared(name)
            }
        return self._static_shared[entry]

    def _told(self, what: str, kind: type[Any]) -> dict[str, Any]:
        """What the functions opsmith_<what>_<number> return, by the spellings of the kernels that have one."""
        found = {}
        for number, spelling in enumerate(self.spellings):
            function = getattr(self.handle, f"opsmith_{what}_{number}", None)
            if function is not None:
                function.restype = kind
                found[spelling] = function()
        return found

    def _is_shared(self, symbol: str) -> bool:
        """Whether a variable of a thread is the author's: not what marks their place, nor a pointer to the dynamic
        shared memory, declared at file scope, nor what guards its initialisation. _ZZ is a variable of a function."""
        if entries.MARKER in symbol or symbol == "__tls_guard":
            return False
        return symbol.startswith("_ZZ") or _readable(symbol) not in self.dynamic_names

    def constant(self, name: str) -> tuple[int, Variable]:
        """A __constant__ variable: its address, and what it holds."""
        number = self._constants[name]
        address, size, kind = (
            getattr(self.handle, f"opsmith_constant{part}_{number}") for part in ("", "_bytes", "_type")
        )
        address.restype, size.restype, kind.restype = ctypes.c_void_p, ctypes.c_ulong, ctypes.c_char_p
        (element,) = template_arguments(demangled(kind().decode()))
        return address(), Variable(name, element, size())

    def _shared(self, symbols: Sequence[elf.Symbol]) -> list[Region]:
        """Static __shared__ variables, from where the marker lies."""
        of_threads = {each.name: each for each in symbols if each.kind == elf.THREAD_LOCAL}
        marker = next(each.value for name, each in of_threads.items() if entries.MARKER in name)
        found = []
        for name, each in of_threads.items():
            if entries.MARKER in name or not each.size:
                continue
            begin, end = (each.value - marker) % 2**64, (each.value + each.size - marker) % 2**64
            found.append(Region(begin, end, SHARED if self._is_shared(name) else IGNORED, self._numbered(name)))
        return found

    def _variables(self, sections: Sequence[elf.Section], symbols: Sequence[elf.Symbol]) -> list[Region]:
        """Variables at file scope, and what the compiler has put into read-only sections."""
        found = []
        for section in sections:
            if section.is_constant and section.name.startswith(".rodata"):
                begin = self.base + section.address
                found.append(Region(begin, begin + section.size, CONSTANT, self._numbered("the compiler's constants")))
        for each in symbols:
            if each.name in _LINKED_IN:
                continue
            if each.kind == elf.OBJECT and each.size and not each.section.startswith((".rodata", ".tbss", ".tdata")):
                kind = CONSTANT if each.section.startswith("opsmith_constant") else DEVICE
                begin = self.base + each.value
                found.append(Region(begin, begin + each.size, kind, self._numbered(each.name)))
        return found

    def _numbered(self, name: str) -> int:
        self.names.append(_readable(name))
        return len(self.names) - 1


def _readable(symbol: str) -> str:
    """'reverse<float, 64>(...)::tile' as 'tile': a variable's own name."""
    if not symbol.startswith("_Z"):
        return symbol
    return demangled(symbol).rpartition("::")[2]
