"""Build a library of several sources: each compiled to an object, in parallel, and all of them linked.

Objects are cached by content, like everything else here. ninja is not used: it decides by time stamps, and a stale
object published under a key of contents would poison the cache.
"""

from __future__ import annotations

import functools
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CompileError, LoadingFailedError, NoSourceError, ToolchainError, UnsupportedArchError
from . import manylinux, process
from .cache import cache_key, obtain
from .compile import (
    COMPILED,
    CXX_STANDARD,
    Abi,
    AbiSettings,
    abi_settings,
    contents,
    cuda_major,
    file_stem,
    host_arch,
    host_compiler_flags,
    include_flags,
    nvcc_for_torch,
    prefix_maps,
    without_include_flags,
)
from .find import find_cxx, nvcc_architectures, nvcc_include_dirs, python_headers
from .invoke import invoke
from .process import run_together
from .settings import ALL, gencode, line_info, max_jobs

CXX_SUFFIXES = (".cpp", ".cc", ".cxx")
CUDA_SUFFIX = ".cu"
SUFFIXES = (*CXX_SUFFIXES, CUDA_SUFFIX, *sorted(COMPILED))

# torch's own builds of extensions define these, because its headers declare such operators too.
_TORCH_CUDA_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
# The flags of a compilation that its linking needs too (OpenMP, sanitizers, a static C++ runtime).
_LINKED_TOO = re.compile(r"-(?:f|m|pthread|static)")
_ATTEMPTS = 3
_LOAD_SECONDS = 300


@dataclass(frozen=True)
class Recipe:
    """The sources and settings of a library. ``targets`` are the architectures of its CUDA sources
    (settings.gpu_targets); with none, no CUDA is compiled or linked. ``system_dirs`` hold headers that are not the
    author's but part of the key: opsmith's own."""

    name: str
    sources: tuple[Path, ...]
    abi: Abi = "stable"
    targets: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    system_dirs: tuple[Path, ...] = ()
    debug: bool = False
    label: str = ""


def build_library(recipe: Recipe) -> Path:
    """The shared library of ``recipe``: cached, or its stale objects compiled and all of them linked.

    Raises what compile_shared_library and compile_with_nvcc raise, and UnsupportedArchError.
    """
    if not recipe.sources:
        raise NoSourceError(recipe.label)
    for _ in range(_ATTEMPTS):
        try:
            return _Plan(recipe).obtain()
        except _Edited as edited:
            last = edited
    raise _edited_too_often(recipe, last)


def build_objects(recipe: Recipe) -> list[Path]:
    """The objects that the library of ``recipe`` is linked from."""
    for _ in range(_ATTEMPTS):
        try:
            plan = _Plan(recipe)
            return [*plan.compiled(), *plan.linked]
        except _Edited as edited:
            last = edited
    raise _edited_too_often(recipe, last)


def _edited_too_often(recipe: Recipe, last: _Edited) -> ToolchainError:
    return ToolchainError(
        f"{last.source} of {recipe.label} was edited each of the {_ATTEMPTS} times it was compiled. Build it again."
    )


class _Edited(Exception):
    """A source or one of its headers changed while it was compiled, so the object does not match its key."""

    def __init__(self, source: Path) -> None:
        self.source = source


class _Plan:
    """A recipe with its sources read and every key known; nothing is compiled yet."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.settings = _settings(recipe)
        self.library = f"{file_stem(recipe.name)}.so"
        self.linked = [source for source in recipe.sources if source.suffix in COMPILED]
        self.objects = [
            _Object(recipe, self.settings, source) for source in recipe.sources if source.suffix not in COMPILED
        ]
        self.flags = link_flags(recipe)
        self.libraries = [*(f"-l{library}" for library in self.settings.libraries), *library_flags(recipe)]
        parts: dict[str, str | bytes] = {f"object {number}": each.key for number, each in enumerate(self.objects)}
        parts.update(contents(self.linked, {}, (), recipe.label))
        self.key = cache_key(
            kind="linked-library",
            sources=parts,
            flags=[self.library, *self.flags, "--", *self.libraries],
            arch=host_arch(recipe.cflags),
            abi=f"{self.settings.level} cuda{cuda_major()}" if recipe.targets else self.settings.level,
        )

    def obtain(self) -> Path:
        return obtain(self.key, self._build, label=self.recipe.label, filenames=[self.library]).path(self.library)

    def compiled(self) -> list[Path]:
        jobs = max_jobs()
        threads = max(1, jobs // len(self.objects)) if self.objects else 1
        if self.recipe.targets:
            require_architectures(self.recipe.targets)  # before a C++ source misses this nvcc's headers
        find_cxx()  # once, before several threads need it
        tasks = [functools.partial(each.obtain, threads) for each in self.objects]
        return run_together(tasks, jobs) if tasks else []

    def _build(self, workdir: Path) -> dict[str, object]:
        recipe = self.recipe
        compiled = self.compiled()
        linker = nvcc_for_torch() if recipe.targets else find_cxx()
        objects = [
            *self.flags,
            *(host_compiler_flags() if recipe.targets else ()),
            *map(str, (*compiled, *self.linked)),
            "-o",
            self.library,
        ]
        libraries = [*(f"-L{directory}" for directory in self.settings.library_dirs), *self.libraries]

        def run(between: Sequence[str]) -> dict[str, object]:
            arguments = [*objects, *between, *libraries]
            return invoke(linker, arguments, workdir=workdir, output=self.library, label=f"{recipe.label} (linking)")

        facts = manylinux.link(workdir / self.library, run, nvcc=bool(recipe.targets))
        if registers_operators(workdir / self.library):
            _try_to_load(workdir / self.library, recipe.label)
        return facts


def registers_operators(library: Path) -> bool:
    """Whether loading a library registers operators with torch."""
    image = library.read_bytes()
    return any(name in image for name in (b"aoti_torch_library_init", b"_ZN5torch7LibraryC"))


def _try_to_load(library: Path, label: str) -> None:
    """Load a library in another process. A registration that torch refuses, such as a misspelled schema, throws while
    the library is being loaded, where it cannot be caught: the process ends, and that must not be the author's."""
    command = [sys.executable, "-c", "import ctypes, sys, torch; ctypes.CDLL(sys.argv[1])", str(library)]
    outcome = process.run(command, timeout=_LOAD_SECONDS)
    if outcome.status != 0:
        raise LoadingFailedError(label, outcome.output)


class _Object:
    """One source file and the object it is compiled to."""

    def __init__(self, recipe: Recipe, settings: AbiSettings, source: Path) -> None:
        self.recipe, self.settings, self.source = recipe, settings, source
        self.cuda = source.suffix == CUDA_SUFFIX
        self.label = f"{recipe.label} ({source.name})"
        given = recipe.cuda_cflags if self.cuda else recipe.cflags
        flags, self.include_dirs = without_include_flags(without_libraries(given), ())
        self.flags = [*_compile_flags(recipe, self.cuda), *settings.cflags, *flags]
        self.filename = f"{file_stem(source.stem)}.o"
        self.contents = self._read()
        self.key = cache_key(
            kind="nvcc-object" if self.cuda else "cxx-object",
            sources=self.contents,
            # A debugger looks for the sources in the directory they were compiled in.
            flags=[self.filename, *self.flags, *([str(source.parent)] if recipe.debug else [])],
            arch=f"{host_arch(flags)} {' '.join(recipe.targets)}" if self.cuda else host_arch(flags),
            abi=f"{settings.level} cuda{cuda_major()}" if self.cuda else settings.level,
        )

    def obtain(self, threads: int) -> Path:
        build = functools.partial(self._build, threads)
        return obtain(self.key, build, label=self.label, filenames=[self.filename]).path(self.filename)

    def _read(self) -> Mapping[str, str | bytes]:
        return contents([self.source], {}, [*self.include_dirs, *self.recipe.system_dirs], self.label)

    def _build(self, threads: int, workdir: Path) -> dict[str, object]:
        recipe, own, system = self.recipe, self.include_dirs, [*self.recipe.system_dirs, *self.settings.include_dirs]
        maps = [] if recipe.debug else prefix_maps([self.source.parent, *own, *system])
        if self.cuda:
            compiler = nvcc_for_torch()
            host = [*(f"-Xcompiler={flag}" for flag in maps), *host_compiler_flags(), f"--threads={threads}"]
        else:
            compiler, host = find_cxx(), maps
            system += nvcc_include_dirs() if recipe.targets else ()

        def run(flags: Sequence[str], is_text: bool = False) -> dict[str, object]:
            return invoke(
                compiler,
                [*flags, *include_flags(own, system), *host, str(self.source), "-o", self.filename],
                workdir=workdir,
                output=self.filename,
                label=self.label,
                own_directories=[self.source.parent, *own],
                is_text=is_text,
            )

        try:
            facts = run(self.flags)
        except CompileError:
            if self.cuda:
                self._compile_for_each_target(run)
            raise
        if self._read() != self.contents:
            raise _Edited(self.source)
        return facts

    def _compile_for_each_target(self, run: Callable[[Sequence[str], bool], object]) -> None:
        """After a failure: raises the CompileError of a target if others compile. nvcc does not say which it was."""
        first, *rest = self.recipe.targets
        if not rest:
            return
        failed: dict[str, CompileError] = {}
        compiled: list[str] = []
        for target in (first, rest[-1], *rest[:-1]):
            if len(failed) == 2 and not compiled:
                return  # most likely for all
            own = _Object(replace(self.recipe, targets=(target,)), self.settings, self.source)
            virtual = target.startswith("compute_")
            try:
                alone = "-ptx" if virtual else "-cubin"
                run([alone if flag == "-c" else flag for flag in own.flags], virtual)
                compiled.append(target)
            except CompileError as error:
                failed[target] = error
        if failed and compiled:
            one, *_ = failed.values()
            which = f"{self.label} for {', '.join(failed)} (it compiles for {', '.join(compiled)})"
            raise CompileError(which, nvcc_for_torch(), one.command, one.errors, one.log) from None

    def editor_command(self, compiler: Sequence[str], cuda_dirs: Iterable[Path]) -> list[str]:
        """The command for an editor's language server. That is clang, which does not know nvcc's flags."""
        system = [*self.recipe.system_dirs, *self.settings.include_dirs, *cuda_dirs]
        shared = [f"-std={CXX_STANDARD}", *_defines(self.recipe), *self.settings.cflags]
        own = [flag for flag in self.flags if flag.startswith("-D") and flag not in shared]
        real = [target for target in self.recipe.targets if target.startswith("sm_")]
        kind = ["-x", "cuda", *(f"--cuda-gpu-arch={target}" for target in real[-1:])] if self.cuda else []
        directories = include_flags(self.include_dirs, system)
        return [*compiler, *kind, *shared, *own, *directories, "-c", str(self.source)]


def editor_commands(recipe: Recipe, compiler: Sequence[str], cuda_dirs: Sequence[Path]) -> dict[Path, list[str]]:
    """The commands of compile_commands.json, by source. ``cuda_dirs`` are where CUDA's headers are."""
    settings = _settings(recipe)
    found = {}
    for source in recipe.sources:
        if source.suffix not in COMPILED:
            each = _Object(recipe, settings, source)
            program = ["clang++"] if each.cuda else compiler
            found[source] = each.editor_command(program, cuda_dirs if recipe.targets else ())
    return found


def _settings(recipe: Recipe) -> AbiSettings:
    settings = abi_settings(recipe.abi)
    if recipe.abi != "torch":
        return settings
    # torch/extension.h includes Python.h: such a library is for one version of Python as well as of torch.
    (torch_libraries,) = settings.library_dirs
    cuda = [name for name in ("torch_cuda", "c10_cuda") if (torch_libraries / f"lib{name}.so").exists()]
    return replace(
        settings,
        level=f"{settings.level} {sysconfig.get_config_var('SOABI')}",
        include_dirs=(*settings.include_dirs, python_headers()),
        libraries=(*settings.libraries, "torch_python", *(cuda if recipe.targets else ())),
    )


def _compile_flags(recipe: Recipe, cuda: bool) -> list[str]:
    if not cuda:
        level = ["-O0", "-g"] if recipe.debug else ["-O3"]
        return [*level, f"-std={CXX_STANDARD}", "-c", "-fPIC", "-fvisibility=hidden", *_defines(recipe)]
    level = ["-O0", "-g", "-G"] if recipe.debug else ["-O3"]
    host = "-Xcompiler=-fPIC,-fvisibility=hidden"
    of_torch = _TORCH_CUDA_FLAGS if recipe.abi == "torch" else ()
    common = [*level, f"-std={CXX_STANDARD}", "-c", host, "--expt-relaxed-constexpr", *of_torch, *_defines(recipe)]
    return [*common, *gencode(recipe.targets), *([] if recipe.debug else line_info())]


def _defines(recipe: Recipe) -> list[str]:
    # torch's stable headers declare their CUDA functions only with USE_CUDA.
    cuda = ["-DOPSMITH_WITH_CUDA", "-DUSE_CUDA"] if recipe.targets else []
    module = [f"-DTORCH_EXTENSION_NAME={recipe.name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    return [*cuda, *(module if recipe.abi == "torch" else [])]


def link_flags(recipe: Recipe) -> list[str]:
    """Everything but the libraries. Symbols of what is linked statically, the CUDA runtime among it, stay inside."""
    compiled = [flag for flag in recipe.cflags if _LINKED_TOO.match(flag)]
    if recipe.targets:
        host = [f"-Xcompiler={flag}" for flag in compiled if "," not in flag]
        return ["-shared", *gencode(recipe.targets), *host, "-Xlinker=--exclude-libs=ALL", "-Xlinker=--no-as-needed"]
    return ["-shared", *compiled, "-Wl,--exclude-libs,ALL", "-Wl,--no-as-needed"]


def library_flags(recipe: Recipe) -> list[str]:
    """-l, -L and -Wl among the author's flags, for whichever compiler links."""
    given = [flag for flag in (*recipe.cflags, *recipe.cuda_cflags) if _is_for_linker(flag)]
    if not recipe.targets:
        return given
    return [f"-Xlinker={flag[4:]}" if flag.startswith("-Wl,") else flag for flag in given]


def _is_for_linker(flag: str) -> bool:
    return flag.startswith(("-l", "-L", "-Wl,")) and flag != "-lineinfo"  # nvcc's, for its compiler


def without_libraries(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not _is_for_linker(flag)]


def require_architectures(targets: Sequence[str]) -> None:
    """Raises what nvcc_for_torch raises, and UnsupportedArchError for a GPU that nvcc cannot compile for."""
    nvcc, known = nvcc_for_torch(), nvcc_architectures()
    for target in targets:
        number = re.sub(r"\D", "", target)
        if known and target not in ALL and f"sm_{number}" not in known:
            raise UnsupportedArchError(target, str(nvcc), known)
