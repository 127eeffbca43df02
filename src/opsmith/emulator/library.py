"""A source's kernels compiled for the emulator, and the runtime they call: each built once and cached."""

from __future__ import annotations

import bisect
import ctypes
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import CompileError, UnsupportedFeatureError
from ..kernels.cuda_source.signature import DeviceType, Variable, described_types, template_arguments
from ..toolchain import cache_key, compile_shared_library, find_cxx, included_files, load_library, obtain
from ..toolchain.demangle import demangled
from ..toolchain.invoke import invoke
from . import elf, entries
from .structures import CONSTANT, DEVICE, IGNORED, SHARED, Region
from .translate import translated

NATIVE = Path(__file__).parent / "native"
INCLUDE = Path(__file__).parent / "include"
OPSMITH_INCLUDE = Path(__file__).parents[1] / "include"
SETTLED = {INCLUDE: "/opsmith/emulator/include", OPSMITH_INCLUDE: "/opsmith/include"}
"""What the lines of opsmith's own headers are filed under: another installation may have built a cached library."""
RED_ZONE = 256
"""Bytes behind each static __shared__ variable that are nobody's."""

# DWARF 4: addr2line of binutils 2.40 takes some lines of version 5 to be in another file.
_FLAGS = (
    "-std=c++20", "-gdwarf-4", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-math-errno", "-w", "-pthread",
)  # fmt: skip
# The compiler emits a call before each load and store, for each addition that might overflow, and for each pointer that
# might be misaligned; native/runtime.cpp defines what is called.
# Volatile accesses have calls of their own.
_CHECKED = (
    "-O1", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1",
    "-fsanitize=signed-integer-overflow,alignment,integer-divide-by-zero",
)  # fmt: skip
_UNCHECKED = ("-O2",)
_WRAPPED = tuple(f"-Wl,--wrap={name}" for name in ("memcpy", "memmove", "memset"))
_VARIABLE = re.compile(r"^(?P<label>[^\s:#.][^\s:]*):\n\t\.zero\t(?P<bytes>\d+)$", re.MULTILINE)
_OBJECT = re.compile(
    r"^\t\.type\t(?P<name>[^,\s]+), ?@object\n(?:\t\.size\t[^\n]+\n)?(?P<label>(?P=name):\n)", re.MULTILINE
)
_COMMON = re.compile(r"^\t\.local\t(?P<name>\S+)\n\t\.comm\t(?P=name),(?P<bytes>\d+),(?P<alignment>\d+)$", re.MULTILINE)
# Sections of __device__ and __constant__ variables.
_OF_THE_DEVICE = (".data", ".bss", "opsmith_constant", "opsmith_constant_of_const")
_LINKED_IN = ("completed.0", "__dso_handle")  # what the compiler's own start-up code brings
_SECTION = re.compile(r"^\t(?:\.section\t(?P<name>[^,\n]+)|(?P<plain>\.(?:text|data|bss))\b)", re.MULTILINE)
_REFUSAL = re.compile(r"opsmith's emulator does not run (?P<feature>[^:\n]*\([^)\n]*\)|[^.:\"\n]+)")


@functools.cache
def runtime() -> ctypes.CDLL:
    """The emulator's runtime, built on first use."""
    return load_library(_runtime_path())


def _digest() -> str:
    contents = b"".join(path.read_bytes() for path in sorted(NATIVE.iterdir()))
    return hashlib.sha256(contents).hexdigest()[:16]


@functools.cache
def _runtime_path() -> Path:
    return compile_shared_library(
        "opsmith_emulator",
        [NATIVE / "runtime.cpp"],
        abi="plain",
        extra_cflags=("-g", "-pthread", "-ftls-model=initial-exec"),
        # By this name a library of kernels finds it in the process: another build of it must have another.
        extra_ldflags=(f"-Wl,-soname,libopsmith_emulator_{_digest()}.so",),
        label="opsmith's CUDA emulator",
    )


@dataclass(frozen=True)
class Source:
    """A text to compile: what errors call it, the file and line its first line has, where headers are looked for."""

    text: str
    label: str
    file: str
    line: int = 1
    include_dirs: tuple[Path, ...] = ()
    macros: tuple[str, ...] = ()  # NAME=VALUE
    directory: Path | None = None  # of quoted headers


@dataclass
class Library:
    """A compiled library: its kernels by their spelling."""

    path: Path
    spellings: tuple[str, ...]
    constants: tuple[str, ...]
    dynamic_names: tuple[str, ...]
    handle: ctypes.CDLL = field(init=False)

    def __post_init__(self) -> None:
        runtime()  # the library finds it in the process, by its name
        self.handle = load_library(self.path)
        sections, symbols = elf.read(self.path)
        marker = ctypes.cast(self.handle.opsmith_shared_marker, ctypes.c_void_p).value or 0
        self.base = marker - next(each.value for each in symbols if each.name == "opsmith_shared_marker")
        self.names: list[str] = []
        self.shared = self._shared(symbols)
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

    def constant(self, name: str) -> tuple[int, Variable]:
        """A __constant__ variable: its address, and what it holds."""
        number = self.constants.index(name)
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
            # A pointer to the dynamic shared memory, declared at file scope, and what guards its initialisation: the
            # compiler's means, not the author's memory. _ZZ is a variable of a function.
            pointer = name == "__tls_guard" or (not name.startswith("_ZZ") and _readable(name) in self.dynamic_names)
            begin, end = (each.value - marker) % 2**64, (each.value + each.size - marker) % 2**64
            found.append(Region(begin, end, IGNORED if pointer else SHARED, self._numbered(name)))
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


def compile_library(source: Source, spellings: Sequence[str], checks: bool, constants: Sequence[str] = ()) -> Library:
    """The library of these kernels. Raises CompileError with the author's lines, and UnsupportedFeatureError."""
    body, dynamic_names = translated(source.text, source.label)
    entered = entries.text(dict(enumerate(spellings)), constants)
    text = f'#line {source.line} "{source.file}"\n{body}\n#line 1 "<opsmith>"\n{entered}'
    include_dirs = [*source.include_dirs, OPSMITH_INCLUDE]
    flags = [*_FLAGS, *(_CHECKED if checks else _UNCHECKED), *(f"-D{macro}" for macro in source.macros)]
    own = {f"emulator/{path.relative_to(INCLUDE.parent)}": path.read_bytes() for path in sorted(_own_headers())}
    key = cache_key(
        kind="emulated",
        sources={"text": text, **included_files(source.text, source.directory, include_dirs), **own},
        flags=flags,
        arch="host",
        abi=f"emulator {_digest()}",
    )
    name = "kernels.so"

    def build(workdir: Path) -> dict[str, object]:
        runtime_path = _runtime_path()
        (workdir / "kernels.cpp").write_text(text)
        directories = [*([source.directory] if source.directory else []), *include_dirs]
        command = [
            *flags,
            "-include", str(INCLUDE / "opsmith_cuda.h"), "-isystem", str(INCLUDE),
            *(f"-I{directory}" for directory in directories),
            *(f"-fdebug-prefix-map={place}={name}" for place, name in SETTLED.items()),
            "-S", "kernels.cpp", "-o", "kernels.s",
        ]  # fmt: skip
        try:
            invoke(
                find_cxx(), command, workdir=workdir, output=workdir / "kernels.s", label=source.label,
                own_directories=[Path(source.file).parent, *directories], is_text=True,
            )  # fmt: skip
        except CompileError as error:
            if refused := _REFUSAL.search(error.log):
                raise UnsupportedFeatureError(source.label, refused["feature"].strip(), None) from None
            raise
        assembly = (workdir / "kernels.s").read_text()
        (workdir / "kernels.s").write_text(_with_red_zones(assembly))
        return invoke(
            find_cxx(), ["-shared", "kernels.s", "-o", name, *(_WRAPPED if checks else ()), str(runtime_path)],
            workdir=workdir, output=workdir / name, label=source.label,
        )  # fmt: skip

    path = obtain(key, build, label=f"{source.label} for the emulator", filenames=[name]).path(name)
    return Library(path, tuple(spellings), tuple(constants), tuple(dynamic_names))


def _own_headers() -> list[Path]:
    return [path for path in (*INCLUDE.rglob("*"), NATIVE / "interface.h") if path.is_file()]


def _with_red_zones(assembly: str) -> str:
    """Puts RED_ZONE bytes that are nobody's around variables: what runs over the end of one does not land in the next.

    Behind each variable of a thread, which is one of a block here; before each of the device, and behind the last."""

    def common(found: re.Match[str]) -> str:
        name, size = found["name"], found["bytes"]
        return (
            f"\t.pushsection .bss\n\t.balign\t{found['alignment']}\n\t.zero\t{RED_ZONE}\n"
            f"\t.type\t{name}, @object\n\t.size\t{name}, {size}\n{name}:\n\t.zero\t{size}\n\t.popsection"
        )

    def section(found: re.Match[str]) -> str:
        before = bisect.bisect(starts, found.start()) - 1
        return names[before] if before >= 0 else ""

    def widened(found: re.Match[str]) -> str:
        if not section(found).startswith(".tbss"):
            return found[0]
        return f"{found['label']}:\n\t.zero\t{int(found['bytes']) + RED_ZONE}"

    def preceded(found: re.Match[str]) -> str:
        if section(found) not in _OF_THE_DEVICE:
            return found[0]
        return found[0].removesuffix(found["label"]) + f"\t.zero\t{RED_ZONE}\n{found['label']}"

    for pattern, replaced in ((_VARIABLE, widened), (_OBJECT, preceded)):
        found_sections = list(_SECTION.finditer(assembly))
        starts = [found.start() for found in found_sections]
        names = [found["name"] or found["plain"] for found in found_sections]
        assembly = pattern.sub(replaced, assembly)
    behind = f"\t.zero\t{RED_ZONE}\n"
    ends = (
        "\t.data\n", "\t.bss\n", '\t.section\topsmith_constant,"aw"\n', '\t.section\topsmith_constant_of_const,"a"\n'
    )  # fmt: skip
    return _COMMON.sub(common, assembly) + "".join(end + behind for end in ends)
