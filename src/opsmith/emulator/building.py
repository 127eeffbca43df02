"""Compile for the emulator: a CUDA source's text, or an extension's sources, to a library that is cached by content."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cuda_text.declarations import KernelText
from ..errors import CompileError, EmulationError, SourceNotFoundError
from ..toolchain import Recipe, cache_key, find_cxx, obtain
from ..toolchain.compile import (
    COMPILED,
    AbiSettings,
    abi_settings,
    contents,
    file_stem,
    host_arch,
    without_include_flags,
)
from ..toolchain.invoke import invoke
from ..toolchain.objects import CUDA_SUFFIX, library_flags, link_flags, registers_operators, without_libraries
from ..toolchain.process import run_together
from ..toolchain.settings import max_jobs
from . import entries
from .assembly import ASSEMBLY, INCLUDE, OPSMITH_INCLUDE, WRAPPED, assemble, macros, own_flags, own_headers
from .library import Library, digest, runtime, runtime_path
from .mirror import Mirror
from .translate import translated

# Those of a build for a GPU, and those by which kernel.h knows the emulator.
_WITH_CUDA = ("-DOPSMITH_WITH_CUDA", "-DUSE_CUDA")
_DEFINES = ("-DOPSMITH_EMULATOR=1", "-DOPSMITH_EMULATED_HOST=1")
_CXX_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-w", "-pthread")
_WRAPPED_TOO = "-Wl,--wrap=__assert_fail"  # torch's CUDA_KERNEL_ASSERT calls it
_FOR_NVCC = re.compile(r"^-l(?:cuda|cudart|cudart_static|ineinfo)$")


@dataclass(frozen=True)
class Source:
    """A text to compile: its name in errors, the file and line of its first line, the directories of its headers."""

    text: str
    label: str
    file: str
    line: int = 1
    include_dirs: tuple[Path, ...] = ()
    macros: tuple[str, ...] = ()  # -DNAME=VALUE and -UNAME
    pre_included: tuple[str, ...] = ()  # headers that are included before its first line
    directory: Path | None = None  # of quoted headers


def compile_library(
    source: Source,
    spellings: Sequence[str],
    checks: bool,
    constants: Sequence[str] = (),
    kernels: Mapping[str, KernelText] | None = None,
) -> Library:
    """The library of these kernels; `kernels` has them as their author wrote them.

    Those that the compiler does not find are left out, and `Library.refusals` has the reason. Raises CompileError with
    the author's lines, and UnsupportedFeatureError.
    """
    body, dynamic_names = translated(source.text, source.label, source.line)
    before = "".join(f'#include "{header}"\n' for header in source.pre_included)

    def text(refused: Mapping[entries.Entry, str] | None = None) -> str:
        entered = entries.text(spellings, constants, kernels, refused)
        return f'#line 1 "<pre-included>"\n{before}#line {source.line} "{source.file}"\n{body}\n{entered}'

    mirror = Mirror(source.file, source.directory, source.include_dirs, [OPSMITH_INCLUDE])
    mirror.add_headers(before + source.text)
    key = cache_key(
        kind="emulated",
        sources={"text": text(), **mirror.contents, **own_headers()},
        flags=[*own_flags(checks), *source.macros],
        arch="host",
        abi=f"emulator {digest()}",
    )
    name = "kernels.so"

    def build(workdir: Path) -> dict[str, object]:
        linked = runtime_path()
        mirror.write(workdir)
        refused: dict[entries.Entry, str] = {}
        while True:
            (workdir / "kernels.cpp").write_text(text(refused))
            try:
                assemble(
                    workdir / "kernels.cpp", checks, source.macros, mirror, workdir=workdir, label=source.label
                )  # fmt: skip
                break
            except CompileError as error:
                more = entries.refused(error.errors)
                if not more.keys() - refused.keys():
                    raise
                refused |= more
        # The C++ library comes with the emulator's own, and its symbols take the linker longer than the kernels.
        libraries = ("-nodefaultlibs", str(linked), "-lm", "-lgcc", "-lc")
        command = ["-shared", ASSEMBLY, "-o", name, *(WRAPPED if checks else ()), *libraries]
        return invoke(find_cxx(), command, workdir=workdir, output=name, label=source.label)

    path = obtain(key, build, label=f"{source.label} for the emulator", filenames=[name]).path(name)
    return Library(path, tuple(spellings), tuple(constants), (*dynamic_names, *mirror.dynamic_names))


# --- extensions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExtensionLibrary:
    """The library of an extension for the emulator, and the kernels as their author wrote them. `library` is None where
    it has no kernels of its own."""

    path: Path
    library: Library | None
    kernels: dict[str, KernelText]


def compile_extension(recipe: Recipe, checks: bool) -> ExtensionLibrary:
    """The library of an extension: .cu files as kernels, .cpp files as C++. Each source becomes an object, cached by
    content, as with nvcc (toolchain/objects.py).

    Raises CompileError with the author's lines, UnsupportedFeatureError, and EmulationError for a library that
    registers operators."""
    settings = abi_settings("stable")
    sources = [source for source in recipe.sources if source.suffix not in COMPILED]
    first = next((source for source in sources if source.suffix == CUDA_SUFFIX), None)
    units = [_Unit(recipe, settings, source, checks, source is first) for source in sources]
    compiled = [source for source in recipe.sources if source.suffix in COMPILED]
    name = f"{file_stem(recipe.name)}_emulated.so"
    flags = [*link_flags(recipe), *(WRAPPED if checks else ()), _WRAPPED_TOO]
    libraries = [flag for flag in library_flags(recipe) if not _FOR_NVCC.match(flag)]
    key = cache_key(
        kind="emulated-extension",
        sources={
            **{f"object {number}": unit.key for number, unit in enumerate(units)},
            **contents(compiled, {}, (), recipe.label),
        },
        flags=[name, *flags, "--", *libraries],
        arch="host",
        abi=f"{settings.level} emulator {digest()}",
    )

    def link(workdir: Path) -> dict[str, object]:
        find_cxx()  # once, before several threads need it
        objects = run_together([unit.obtain for unit in units], max_jobs())
        arguments = [
            *flags, *map(str, (*objects, *compiled)), "-o", name, str(runtime_path()),
            *(f"-L{directory}" for directory in settings.library_dirs),
            *(f"-l{library}" for library in settings.libraries), *libraries,
        ]  # fmt: skip
        facts = invoke(find_cxx(), arguments, workdir=workdir, output=name, label=f"{recipe.label} (linking)")
        if registers_operators(workdir / name):
            raise EmulationError(
                f"The extension {recipe.name}",
                "it registers operators with torch (STABLE_TORCH_LIBRARY), which a process can do only once, and the "
                "library for the GPU does. Move its kernels to another extension, which exports them by OPSMITH_EXPORT",
            )
        return facts

    path = obtain(key, link, label=recipe.label, filenames=[name]).path(name)
    if first is None:
        runtime()  # the library finds it in the process, by its name
        return ExtensionLibrary(path, None, {})
    mirrors = [unit.mirror for unit in units if unit.cuda]
    names = tuple(name for mirror in mirrors for name in mirror.dynamic_names)
    files = frozenset(file for mirror in mirrors for file in mirror.texts)
    kernels = {name: kernel for mirror in mirrors for name, kernel in mirror.kernels.items()}
    return ExtensionLibrary(path, Library(path, (), (), names, files), kernels)


class _Unit:
    """One source and its object. That of the first .cu file has the parts of every library of kernels (entries.py)."""

    def __init__(self, recipe: Recipe, settings: AbiSettings, source: Path, checks: bool, is_first: bool) -> None:
        self.settings, self.source, self.checks = settings, source, checks
        self.cuda = source.suffix == CUDA_SUFFIX
        self.label = f"{recipe.label} ({source.name})"
        given = recipe.cuda_cflags if self.cuda else recipe.cflags
        with_cuda = any(each.suffix == CUDA_SUFFIX for each in recipe.sources)
        defines = (*(_WITH_CUDA if with_cuda else ()), *_DEFINES)
        flags, include_dirs = without_include_flags(without_libraries(given), ())
        if self.cuda:
            self.flags = ["-D__CUDACC__=1", *defines, *settings.cflags, *macros(flags)]
        else:
            self.flags = [*_CXX_FLAGS, *defines, *settings.cflags, *flags]
        self.object = f"{file_stem(source.stem)}.o"
        self.mirror = Mirror(os.path.abspath(source), source.parent, include_dirs, recipe.system_dirs, self.cuda)
        try:
            self.mirror.add_source(self.label, entries.text(()) if is_first else "")
        except OSError as error:
            raise SourceNotFoundError(source, self.label, error.strerror or str(error)) from error
        self.key = cache_key(
            kind="emulated-object",
            sources={**self.mirror.contents, **own_headers()},
            flags=[self.object, *(own_flags(checks) if self.cuda else ()), *self.flags],
            arch=host_arch(flags),
            abi=f"{settings.level} emulator {digest()}",
        )

    def obtain(self) -> Path:
        return obtain(self.key, self._build, label=self.label, filenames=[self.object]).path(self.object)

    def _build(self, workdir: Path) -> dict[str, object]:
        source, torch_dirs = self.mirror.write(workdir), self.settings.include_dirs
        if self.cuda:
            assemble(
                source, self.checks, self.flags, self.mirror, workdir=workdir, label=self.label, system_dirs=torch_dirs
            )  # fmt: skip
            arguments = ["-c", ASSEMBLY, "-o", self.object]
        else:
            # The emulator's first, because an author may name the directory of CUDA's own headers.
            directories = [f"-I{INCLUDE}", *self.mirror.flags(workdir, torch_dirs)]
            arguments = [*self.flags, "-c", str(source), "-o", self.object, *directories]
        return invoke(
            find_cxx(), arguments, workdir=workdir, output=self.object, label=self.label,
            own_directories=self.mirror.own_directories,
        )  # fmt: skip
