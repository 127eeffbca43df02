"""Linking libraries that leave the machine, so that they load on every system of manylinux_2_28 or later.

A library asks for the newest versions of the symbols that it was linked against. It is therefore linked against stubs:
copies of this system's C and C++ libraries without code, which have each symbol in the newest version that the policy
permits. What is newer comes from libstdc++.a and native/manylinux.c, and stays inside the library. torch's libraries
come last: they give parts of a newer libstdc++, without versions, and not the same parts in every release.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .cache import cache_key, obtain
from .find import Compiler, find_cxx
from .invoke import invoke
from .linkage import Linkage, Symbol, read_linkage, version_number
from .process import run

Facts = dict[str, object]
POLICY = "manylinux_2_28"
_NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_LIBC = "libc.so.6"
_C, _CXX = (_LIBC, "libm.so.6"), ("libstdc++.so.6", "libgcc_s.so.1")
# glibc 2.34 took these libraries into libc; the older names of their functions are found there and in libc.
_FORMER = {"dl": "libdl.so.2", "pthread_": "libpthread.so.0", "sem_": "libpthread.so.0", "shm_": "librt.so.1"}
_TAKEN_IN = ((2, 29), (2, 34))
_INSIDE = {"__libc_single_threaded", "stat", "lstat", "fstat", "fstatat", "pthread_cond_clockwait"}
_ARCHIVES = ("libstdc++.a", "libgcc.a", "libc_nonshared.a")
_SOURCE = Path(__file__).parent / "native" / "manylinux.c"
_EXPORTS = "exports.map"
# C++ names stay inside, templates of the C++ library and of torch among them: functions are exported as C's.
_EXPORTED = "{ local: _Z*; };\n"
_SECTIONS = {"function": ".text", "object": ".data", "tls_object": '.section .tdata,"awT"'}

_active = False


@contextlib.contextmanager
def for_other_systems() -> Iterator[None]:
    """Inside, every library of this process is linked for other systems, where that is possible (`obstacle`). Their
    keys do not say so: they need a cache of their own."""
    global _active
    before, _active = _active, True
    try:
        yield
    finally:
        _active = before


def obstacle() -> str | None:
    """Why libraries cannot be linked for other systems here; None where they can be."""
    found = _parts(find_cxx())
    return found if isinstance(found, str) else None


def identity() -> str:
    """Changes with everything except the objects that the link depends on."""
    found = _parts(find_cxx())
    return f"{POLICY} {found.key}" if isinstance(found, _Parts) else "plain"


def link(library: Path, run: Callable[[list[str]], Facts], *, cxx: bool = True, nvcc: bool = False) -> Facts:
    """Links a library by `run`, which puts further arguments between its objects and torch. `cxx`: whether it needs a
    C++ library. One that needs what the policy lacks is linked plainly, and the audit says so."""
    facts = run(_arguments(cxx=cxx, nvcc=nvcc) if _active else [])
    return run([]) if _active and _too_new(library) else facts


def _arguments(*, cxx: bool, nvcc: bool) -> list[str]:
    """None where libraries are linked plainly."""
    parts = _parts(find_cxx())
    if isinstance(parts, str):
        return []
    stubs = parts.stubs()
    wanted = [*(_CXX if cxx else ()), *_C, *sorted(set(_FORMER.values())), _loader()]
    paths = [str(stubs / name) for name in wanted if (stubs / name).exists()]
    archives = [str(parts.archives[name]) for name in (_ARCHIVES if cxx else _ARCHIVES[1:])]
    linker = [
        "--gc-sections",
        f"--version-script={stubs / _EXPORTS}",
        "--exclude-libs=ALL",
        "--as-needed",
        *paths,
        "--start-group",
        *archives,
        "--end-group",
        *paths,
        "--no-as-needed",
    ]
    objects, given = [str(stubs / "manylinux.o")], ["-nodefaultlibs"]
    if nvcc:
        return [*objects, "-Xcompiler=-nodefaultlibs", *(f"-Xlinker={each}" for each in linker)]
    return [*objects, *given, *(each if each.startswith("/") else f"-Wl,{each}" for each in linker)]


def beyond_policy(linkage: Linkage) -> list[str]:
    """The symbols that a library takes in versions that the policy lacks, as "hypot@GLIBC_2.35"."""
    return sorted(
        f"{symbol.name}@{symbol.version}"
        for symbol in linkage.taken
        if (number := version_number(symbol.version or "")) and number[1] > _NEWEST.get(number[0], number[1])
    )


def _too_new(library: Path) -> list[str]:
    """The symbols that a library takes and that the policy lacks, among those of this system's libraries."""
    parts = _parts(find_cxx())
    if isinstance(parts, str):
        return []
    free = {symbol.name for symbol in read_linkage(library).taken if symbol.version is None and not symbol.is_weak}
    return sorted(free & parts.names)


@dataclass(frozen=True)
class _Parts:
    """This system's files: its C and C++ libraries, and archives with what newer systems have more."""

    compiler: Compiler
    libraries: Mapping[str, Path]
    archives: Mapping[str, Path]

    @functools.cached_property
    def key(self) -> str:
        digests = {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in [*self.libraries.items(), *self.archives.items()]
        }
        sources: dict[str, str | bytes] = {
            **digests,
            "source": _SOURCE.read_bytes(),
            "this": Path(__file__).read_bytes(),
        }
        return cache_key(kind="manylinux-stubs", sources=sources, flags=[POLICY], arch=platform.machine(), abi="plain")

    @functools.cached_property
    def given(self) -> Mapping[str, tuple[Symbol, ...]]:
        return {name: read_linkage(path).given for name, path in self.libraries.items()}

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return frozenset(symbol.name for given in self.given.values() for symbol in given if symbol.version)

    def stubs(self) -> Path:
        contents = self._contents()
        files = [*contents, "manylinux.o", _EXPORTS]

        def build(workdir: Path) -> dict[str, object]:
            (workdir / _EXPORTS).write_text(_EXPORTED)
            facts = self._compile(
                workdir, "manylinux.o", ["-O2", "-c", "-fPIC", "-ffunction-sections", "-fdata-sections"], _SOURCE
            )
            for name, symbols in contents.items():
                self._write(workdir, name, symbols)
            return facts

        return obtain(self.key, build, label=f"stub libraries of {POLICY}", filenames=files).directory

    def _contents(self) -> dict[str, list[Symbol]]:
        """The symbols of each stub."""
        found: dict[str, list[Symbol]] = {}
        for library, given in self.given.items():
            for symbol in _permitted(given):
                found.setdefault(_home(library, symbol, given), []).append(symbol)
        return found

    def _write(self, workdir: Path, name: str, symbols: list[Symbol]) -> None:
        lines = []
        for number, symbol in enumerate(sorted(symbols)):
            own, size = f"s{number}", 1 if symbol.kind == "function" else max(symbol.size, 1)
            lines += [_SECTIONS[symbol.kind], f".globl {own}", f".type {own},%{symbol.kind}", f".size {own},{size}"]
            lines += [f"{own}: .zero {size}", f".symver {own},{symbol.name}@@{symbol.version},remove"]
        source, versions = workdir / f"{name}.s", workdir / f"{name}.map"
        source.write_text("\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""]))
        versions.write_text("".join(f"{version} {{ }};\n" for version in sorted({str(each[1]) for each in symbols})))
        options = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions.name}"]
        self._compile(workdir, name, ["-shared", "-nostdlib", "-fPIC", *options], source)

    def _compile(self, workdir: Path, output: str, options: list[str], source: Path) -> dict[str, object]:
        language = ["-x", "c"] if source.suffix == ".c" else []
        arguments = [*options, *language, str(source), "-o", output]
        return invoke(self.compiler, arguments, workdir=workdir, output=output, label=f"{POLICY}'s {output}")


@functools.cache
def _parts(compiler: Compiler) -> _Parts | str:
    """This system's files, or what is missing."""
    if platform.machine() not in _LOADERS:
        return f"{POLICY} is not known for {platform.machine()}"
    found = {}
    for name in (*_C, *_CXX, _loader(), *_ARCHIVES):
        printed = run([*compiler.command, f"-print-file-name={name}"], timeout=60).output.strip()
        if not Path(printed).is_absolute() or not Path(printed).is_file():
            return f"{compiler} has no {name}"
        found[name] = Path(printed).resolve()
    archives = {name: found.pop(name) for name in _ARCHIVES}
    return _Parts(compiler, found, archives)


def _loader() -> str:
    return _LOADERS[platform.machine()]


def _permitted(given: tuple[Symbol, ...]) -> list[Symbol]:
    """Each symbol in the newest version that the policy has."""
    newest: dict[str, tuple[tuple[int, ...], Symbol]] = {}
    for symbol in given:
        if symbol.version is None or symbol.name == symbol.version or symbol.name in _INSIDE:
            continue
        parsed = version_number(symbol.version)
        if parsed is None or parsed[0] not in _NEWEST or parsed[1] > _NEWEST[parsed[0]]:
            continue
        if symbol.name not in newest or parsed[1] > newest[symbol.name][0]:
            newest[symbol.name] = parsed[1], symbol
    return [symbol for _, symbol in newest.values()]


def _home(library: str, symbol: Symbol, given: tuple[Symbol, ...]) -> str:
    """The library that has this version of a symbol on older systems."""
    former = next((_FORMER[prefix] for prefix in _FORMER if symbol.name.startswith(prefix)), None)
    if library != _LIBC or former is None:
        return library
    first, last = _TAKEN_IN
    taken_in = any(
        each.name == symbol.name and (number := version_number(str(each.version))) and first <= number[1] <= last
        for each in given
    )
    return former if taken_in else library
