"""opsmith.extension: C++ and CUDA sources become a library, and its functions become kernels."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from ..errors import (
    CompileError,
    ExtensionArgumentError,
    NoSourceError,
    OperatorsRegisteredError,
    OpsmithError,
    SourceNotFoundError,
    ToolMissingError,
    UnknownFunctionError,
    UnsupportedArchError,
)
from ..errors.base import listed
from ..toolchain import Recipe, build_library, defined_symbols, gpu_targets, load_library, switch, zipped
from ..toolchain.cache import search_package_of
from ..toolchain.compile import COMPILED
from ..toolchain.objects import CUDA_SUFFIX, SUFFIXES, registers_operators
from ..toolchain.portable import find_library
from . import compile_commands, emulation, host
from .native import INCLUDE_DIRECTORY, NativeFunction, exported_functions

if TYPE_CHECKING:
    from .cuda_source.source import CudaSource

ABIS = ("stable", "torch")
_STABLE_ONLY = "TORCH_STABLE_ONLY"  # in the error message of torch's other headers
_NOT_STABLE = (
    "a source includes a header that is not part of torch's stable ABI. Include <opsmith/kernel.h> instead, or build "
    'with abi="torch", for one torch and one Python'
)

registry: dict[str, Extension] = {}


def extension(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    kernels: CudaSource | None = None,
    cuda: bool | None = None,
    arch: str | Sequence[str] | None = None,
    extra_cflags: Sequence[str] = (),
    extra_cuda_cflags: Sequence[str] = (),
    debug: bool = False,
    abi: Literal["stable", "torch"] = "stable",
    lazy: bool = False,
) -> Extension:
    """Builds C++ and CUDA sources into a library, loads it, and gives its functions to register_kernel.

    >>> ext = opsmith.extension("mylib_ext", ["square.cpp", "square.cu"])
    >>> square.register_kernel("cpu", ext.square_cpu)
    >>> square.register_kernel("cuda", ext.square_cuda)

    Objects and libraries are cached by content: an unchanged source is not recompiled, in this process or another.
    OPSMITH_EXPORT of <opsmith/kernel.h> exports a function, which torch's dispatcher calls without Python.

    Args:
        name: the name in messages; for abi="torch" also the Python module's name.
        sources: .cpp and .cu files, and objects (.o, .a). Relative paths start at the current directory, else at that
            of the calling file.
        kernels: an opsmith.cuda_source whose kernels the C++ sources launch by name. They need no nvcc then.
        cuda: False leaves .cu files out and OPSMITH_WITH_CUDA undefined. None: True if there are any, unless the
            environment has USE_CUDA=0.
        arch: GPUs to compile for, "sm_90" or several. None: GPU_TARGETS of the environment, else this machine's GPUs,
            else one architecture of each generation.
        extra_cflags, extra_cuda_cflags: for the C++ compiler and for nvcc; -l and -L among them reach the linker.
        debug: compile without optimisation, for a debugger. DEBUG=1 in the environment does the same.
        abi: "stable": torch's stable ABI, one binary for every torch since 2.11 and every Python. "torch": the C++ API
            of the installed torch (torch/extension.h); the functions of a PYBIND11_MODULE are attributes.
        lazy: build at the first use of a function instead of now. A machine without a compiler does so in any case, and
            then runs the reference, with a warning.
    """
    caller = sys._getframe(1).f_globals
    for option, flags in (("extra_cflags", extra_cflags), ("extra_cuda_cflags", extra_cuda_cflags)):
        _check_flags(name, option, flags)
    if abi not in ABIS:
        raise ExtensionArgumentError(name, f"abi={abi!r} is not one of {', '.join(map(repr, ABIS))}")
    if kernels is not None and abi != "stable":
        raise ExtensionArgumentError(name, 'kernels= is for abi="stable": opsmith::launch is in <opsmith/kernel.h>')
    options = _Options(cuda, arch, tuple(extra_cflags), tuple(extra_cuda_cflags), debug, abi, kernels)
    made = Extension(name, _paths(name, sources, caller.get("__file__")), str(caller.get("__name__")), options)
    search_package_of(str(caller.get("__name__")))
    if not lazy:
        try:
            made.build()
        except ToolMissingError as error:
            # A module's functions are Python's, and needed now; `arch` is the author's own mistake. Else the first call
            # of a kernel tries again, warns, and runs the reference.
            if abi != "stable" or (arch is not None and isinstance(error, UnsupportedArchError)):
                raise
    return made


class _Options(NamedTuple):
    """The arguments of `extension` that a build needs."""

    cuda: bool | None
    arch: str | Sequence[str] | None
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    debug: bool
    abi: Literal["stable", "torch"]
    kernels: CudaSource | None


def _check_flags(name: str, option: str, flags: Sequence[str]) -> None:
    if isinstance(flags, str):
        raise ExtensionArgumentError(name, f'{option} is a list of flags: write ["{flags}"]')
    if forced := [flag for flag in flags if flag.startswith(("-include", "-imacros", "--pre-include"))]:
        raise ExtensionArgumentError(
            name, f"{option} has {forced[0]}, and an edit of that header would not cause a rebuild. Write its #include "
            "into the sources"
        )  # fmt: skip


class Extension:
    """What `opsmith.extension` returns: the functions that its library exports are its attributes."""

    def __init__(self, name: str, sources: Sequence[Path], module: str, options: _Options) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ExtensionArgumentError(name, "its name must be letters, digits and underscores, with no digit first")
        former = registry.get(name)
        if former is not None and former._module != module:
            raise ExtensionArgumentError(
                name, f"module {former._module} already declares one of this name, from {listed(former.sources)}. "
                "Choose another name; only the same module can declare it again (a notebook cell that runs twice does)"
            )  # fmt: skip
        self.name = name
        self.sources: tuple[Path, ...] = tuple(sources)
        self._module: str = module
        self._options = options
        self._lock = threading.RLock()
        self._path: Path | None = None
        self._python: ModuleType | None = None
        registry[name] = self

    @property
    def built(self) -> bool:
        return self._path is not None

    def build(self) -> Path:
        """Builds and loads the library, once, and returns its path. With `lazy=True` the first use of a function does
        this."""
        with self._lock:
            if self._path is None:
                recipe = self.recipe()
                path = find_library(recipe) or self._compiled(recipe)
                self._load(path)
                self._path = path
            return self._path

    def _compiled(self, recipe: Recipe) -> Path:
        compile_commands.write(recipe)
        try:
            return build_library(recipe)
        except CompileError as error:
            if recipe.abi == "stable" and _STABLE_ONLY in error.log:
                raise ExtensionArgumentError(self.name, _NOT_STABLE) from error
            raise

    def recipe(self, targets: Sequence[str] | None = None) -> Recipe:
        """The sources and settings that its library is built with. `targets`: for other GPUs than those of its
        declaration; none leaves CUDA out."""
        options = self._options
        with_cuda = self._with_cuda if targets is None else bool(targets) and self._with_cuda
        sources = [source for source in self.sources if with_cuda or source.suffix != CUDA_SUFFIX]
        if not sources:
            raise ExtensionArgumentError(
                self.name,
                "all its sources are .cu files, and CUDA is switched off (cuda=False or USE_CUDA=0). Add a .cpp file, "
                "or build with CUDA",
            )
        return Recipe(
            self.name,
            tuple(sources),
            abi=options.abi,
            targets=tuple(targets or gpu_targets(options.arch)) if with_cuda else (),
            cflags=options.cflags,
            cuda_cflags=options.cuda_cflags,
            system_dirs=(INCLUDE_DIRECTORY,),
            debug=options.debug or bool(switch("DEBUG")),
            label=f"the extension {self.name}",
        )

    @property
    def kernels(self) -> CudaSource | None:
        """The source of the kernels that it launches by name."""
        return self._options.kernels

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self._module

    @property
    def is_cuda_alone(self) -> bool:
        """Whether all its sources are CUDA's, so that nothing is left without CUDA."""
        return all(source.suffix == CUDA_SUFFIX for source in self.sources)

    @property
    def has_cuda(self) -> bool:
        """Whether some of its sources are CUDA's."""
        return any(source.suffix == CUDA_SUFFIX for source in self.sources)

    @property
    def is_stable(self) -> bool:
        """Whether one library serves every torch and every Python, so that a package can ship it."""
        return self._options.abi == "stable"

    def emulator_recipe(self) -> Recipe:
        """What the emulator compiles with the machine's C++ compiler: it needs no GPU architecture."""
        return Recipe(
            self.name,
            self.sources,
            cflags=self._options.cflags,
            cuda_cflags=self._options.cuda_cflags,
            system_dirs=(INCLUDE_DIRECTORY,),
            label=f"the extension {self.name} for the emulator",
        )

    @property
    def is_emulated(self) -> bool:
        """Whether `emulate` runs its functions: it has or launches CUDA sources, uses the stable ABI, and registers no
        operators, which torch accepts once a process."""
        return (
            self._options.abi == "stable"
            and self._options.cuda is not False
            and (self.has_cuda or self.kernels is not None)
            and not any(_REGISTRATION.search(_text(source)) for source in self.sources if source.suffix not in COMPILED)
        )

    @property
    def _with_cuda(self) -> bool:
        if self._options.cuda is not None:
            return self._options.cuda
        return switch("USE_CUDA") is not False and self.has_cuda

    def _load(self, path: Path) -> None:
        _refuse_second_registration(self.name, self.sources, path)
        if f"PyInit_{self.name}" in defined_symbols(path):
            # A name for each build, of which Python uses the last part: pybind11 returns one module for one name.
            name = f"opsmith_extensions.{path.parent.name}.{self.name}"
            loader = importlib.machinery.ExtensionFileLoader(name, str(path))
            spec = importlib.util.spec_from_file_location(name, path, loader=loader)
            assert spec is not None
            self._python = importlib.util.module_from_spec(spec)
            loader.exec_module(self._python)
            return
        library = load_library(path)
        if self.kernels is not None:
            if not hasattr(library, host.SET_HOST):
                raise ExtensionArgumentError(
                    self.name, "it has kernels=, and no source includes <opsmith/kernel.h>, which launches them"
                )
            host.attach(library, self.kernels, f"the extension {self.name}", self._module)

    def exports(self) -> list[str]:
        """The exported functions; before the build, those that the sources name."""
        if self._path is None:
            texts = [_text(source) for source in self.sources]
            return sorted({name for text in texts for name in re.findall(r"\bOPSMITH_EXPORT\(\s*(\w+)", text)})
        public = [name for name in dir(self._python) if not name.startswith("_")] if self._python else []
        return sorted({*exported_functions(self._path), *public})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_path" not in self.__dict__:
            raise AttributeError(name)
        if not self.built and self._options.abi == "stable":
            return ExtensionFunction(self, name)
        path = self.build()
        if self._python is not None and hasattr(self._python, name):
            return getattr(self._python, name)
        if name not in exported_functions(path):
            raise self._unknown(name)
        return ExtensionFunction(self, name)

    def _unknown(self, name: str) -> UnknownFunctionError:
        left_out = [source.name for source in self.sources if source.suffix == CUDA_SUFFIX and not self._with_cuda]
        return UnknownFunctionError(self.name, name, self.exports(), left_out)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.exports()})

    def __repr__(self) -> str:
        names = ", ".join(source.name for source in self.sources)
        return f"<extension {self.name} of {names}: {', '.join(self.exports()) or 'exports nothing'}>"


class ExtensionFunction(NativeFunction):
    """A function of an extension, built when its address is first needed."""

    def __init__(self, extension: Extension, symbol: str) -> None:
        self.extension = extension
        self.symbol = symbol

    @property
    def path(self) -> Path:
        return self.extension.build()

    @property
    def module(self) -> str:
        return self.extension.module

    @property
    def ready(self) -> bool:
        return self.extension.built

    def unknown(self) -> OpsmithError:
        return self.extension._unknown(self.symbol)

    def emulated(self) -> NativeFunction | None:
        return emulation.cuda_emulator().function(self) if self.extension.is_emulated else None

    def __str__(self) -> str:
        when = "" if self.ready else ", built at the first call"
        return f"C++ {self.symbol} (extension {self.extension.name}{when})"

    def __repr__(self) -> str:
        return f"<function {self.symbol} of {self.extension.name}>"


def _paths(
    name: str, sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], caller: str | None
) -> list[Path]:
    given = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    label = f"the extension {name}"
    if not given:
        raise NoSourceError(label)
    return [_path(name, label, Path(source), caller) for source in given]


def _path(name: str, label: str, source: Path, caller: str | None) -> Path:
    if source.suffix not in SUFFIXES:
        raise ExtensionArgumentError(name, f"{source} is not a source file, whose names end in {', '.join(SUFFIXES)}")
    beside = [Path(caller).absolute().parent / source] if caller else []
    for place in (source.absolute(), *beside):
        if place.is_file():
            return place
        if (file := zipped.as_file(place)) is not None:
            return file
    raise SourceNotFoundError(source.absolute(), label, "No such file")


def _text(source: Path) -> str:
    try:
        text = source.read_text(errors="replace")
    except OSError:
        return ""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


# --- libraries that register operators of their own ----------------------------------------------------------------

_REGISTRATION = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(_FRAGMENT)?\s*\(\s*(\w+)")
_DEFINITION = re.compile(r"\.def\(\s*\"(\w+)")
_loaded: set[Path] = set()
_registering: dict[str, Path] = {}  # the build whose operators this process has, by extension


def _refuse_second_registration(name: str, sources: Sequence[Path], path: Path) -> None:
    """Raises where torch would throw: for a namespace or an operator that is registered already. While a library is
    being loaded that exception cannot be caught and ends the process."""
    if path in _loaded:
        return
    for text in map(_text, sources):
        namespaces = _REGISTRATION.findall(text)
        for fragment, namespace in namespaces:
            if not fragment and not _is_free(namespace):
                raise OperatorsRegisteredError(name, f"the namespace {namespace!r}")
        for operator in _DEFINITION.findall(text):
            for _, namespace in namespaces:
                if torch._C._jit_get_schemas_for_operator(f"{namespace}::{operator}"):
                    raise OperatorsRegisteredError(name, f"the operator {namespace}::{operator}")
    if registers_operators(path):
        # The library shows what the text does not: registrations by a macro or in a header.
        if _registering.setdefault(name, path) != path:
            raise OperatorsRegisteredError(name, "operators")
    _loaded.add(path)


def _is_free(namespace: str) -> bool:
    try:
        torch.library.Library(namespace, "DEF")._destroy()
    except (RuntimeError, ValueError):  # a ValueError for names that torch reserves
        return False
    return True
