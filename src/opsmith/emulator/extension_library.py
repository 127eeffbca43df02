"""An extension's sources compiled for the emulator: .cu files as kernels are, .cpp files as C++, linked into a library.

Each source is an object of its own, cached by content, as those that nvcc makes are (toolchain/objects.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import EmulationError, SourceNotFoundError, UnsupportedFeatureError
from ..kernels.cuda_source.text import KernelText
from ..toolchain import Recipe, cache_key, find_cxx, obtain
from ..toolchain.abi import AbiSettings, abi_settings
from ..toolchain.compile import COMPILED, contents, file_stem, host_arch, without_include_flags
from ..toolchain.invoke import invoke
from ..toolchain.objects import CUDA_SUFFIX, library_flags, link_flags, registers_operators, without_libraries
from ..toolchain.parallel import run_together
from ..toolchain.settings import max_jobs
from . import entries
from .assembly import INCLUDE, WRAPPED, assemble, own_flags, own_headers
from .library import Library, digest, runtime_path
from .mirror import Mirror, inside, mirrored
from .options import macros

# As where a GPU is compiled for; and what tells kernel.h where it is.
_DEFINES = ("-DOPSMITH_WITH_CUDA", "-DUSE_CUDA", "-DOPSMITH_EMULATOR=1", "-DOPSMITH_EMULATED_HOST=1")
_CXX_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-w", "-pthread")
_WRAPPED_TOO = "-Wl,--wrap=__assert_fail"  # torch's CUDA_KERNEL_ASSERT calls it
_FOR_NVCC = re.compile(r"^-l(?:cuda|cudart|cudart_static|ineinfo)$")


@dataclass(frozen=True)
class ExtensionLibrary:
    """What an extension is for the emulator: its library, and the kernels as their author wrote them."""

    library: Library
    kernels: dict[str, KernelText]


def build(recipe: Recipe, checks: bool) -> ExtensionLibrary:
    """Raises CompileError with the author's lines, UnsupportedFeatureError, and EmulationError for a library that
    registers operators."""
    settings = abi_settings("stable")
    sources = [source for source in recipe.sources if source.suffix not in COMPILED]
    first = next(source for source in sources if source.suffix == CUDA_SUFFIX)
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
        find_cxx()  # once, before several threads ask for it
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
                "it registers operators with torch (STABLE_TORCH_LIBRARY), which a process does once, and the library "
                "for the GPU does it. Put its kernels into an extension of their own, exported by OPSMITH_EXPORT",
            )
        return facts

    path = obtain(key, link, label=recipe.label, filenames=[name]).path(name)
    mirrors = [unit.mirror for unit in units if unit.cuda]
    names = tuple(name for mirror in mirrors for name in mirror.dynamic_names)
    files = frozenset(file for mirror in mirrors for file in mirror.texts)
    kernels = {name: kernel for mirror in mirrors for name, kernel in mirror.kernels.items()}
    return ExtensionLibrary(Library(path, (), (), names, files), kernels)


class _Unit:
    """One source on its way to an object. The first .cu file's has what every library of kernels has (entries.py)."""

    def __init__(self, recipe: Recipe, settings: AbiSettings, source: Path, checks: bool, is_first: bool) -> None:
        self.settings, self.source, self.checks = settings, source, checks
        self.cuda = source.suffix == CUDA_SUFFIX
        self.label = f"{recipe.label} ({source.name})"
        given = recipe.cuda_cflags if self.cuda else recipe.cflags
        flags, self.include_dirs = without_include_flags(without_libraries(given), ())
        if self.cuda:
            self.flags = ["-D__CUDACC__=1", *_DEFINES, *settings.cflags, *macros(flags)]
        else:
            self.flags = [*_CXX_FLAGS, *_DEFINES, *settings.cflags, *flags]
        self.system_dirs = recipe.system_dirs
        self.object = f"{file_stem(source.stem)}.o"
        self.mirror = self._mirrored(is_first)
        self.key = cache_key(
            kind="emulated-object",
            sources={**self.mirror.contents, **own_headers()},
            flags=[self.object, *(own_flags(checks) if self.cuda else ()), *self.flags],
            arch=host_arch(flags),
            abi=f"{settings.level} emulator {digest()}",
        )

    def _mirrored(self, is_first: bool) -> Mirror:
        ending = entries.text(()) if is_first else ""
        try:
            return mirrored(self.source, self.include_dirs, self.system_dirs, self.label, self.cuda, ending)
        except OSError as error:
            raise SourceNotFoundError(self.source, self.label, error.strerror or str(error)) from error

    def obtain(self) -> Path:
        return obtain(self.key, self._build, label=self.label, filenames=[self.object]).path(self.object)

    def _build(self, workdir: Path) -> dict[str, object]:
        source = self.mirror.write(workdir)
        # The originals come after: a header that a macro names is in no tree.
        directories = [*(inside(workdir, each) for each in self.include_dirs), self.source.parent, *self.include_dirs]
        system = [*self.system_dirs, *self.settings.include_dirs]
        arguments: Sequence[str]
        if self.cuda:
            self._assemble(source, workdir, directories, system)
            arguments = ["-c", "unit.s", "-o", self.object]
        else:
            # The emulator's first, for an author may name the directory of CUDA's own headers.
            arguments = [
                *self.flags, "-c", str(source), "-o", self.object,
                *(f"-I{directory}" for directory in (INCLUDE, *directories)),
                *(part for directory in system for part in ("-isystem", str(directory))),
            ]  # fmt: skip
        return invoke(
            find_cxx(), arguments, workdir=workdir, output=self.object, label=self.label,
            own_directories=self._own(),
        )  # fmt: skip

    def _assemble(self, source: Path, workdir: Path, directories: Sequence[Path], system: Sequence[Path]) -> None:
        try:
            assemble(
                source, workdir / "unit.s", self.checks, self.flags, directories, workdir=workdir, label=self.label,
                own_directories=self._own(), system_directories=system,
            )  # fmt: skip
        except UnsupportedFeatureError as error:
            raise self.mirror.refusals.get(error.feature, error) from None

    def _own(self) -> list[Path]:
        return [self.source.parent, *self.include_dirs]
