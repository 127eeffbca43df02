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
from typing import Any, Literal

import torch

from ..errors import (
    CompileError,
    ExtensionArgumentError,
    ExtensionNameTakenError,
    NoSourceError,
    OperatorsRegisteredError,
    OpsmithError,
    SourceNotFoundError,
    UnknownFunctionError,
)
from ..toolchain import Recipe, build_library, defined_symbols, gpu_targets, load_library, switch
from ..toolchain.compile import COMPILED
from ..toolchain.objects import CUDA_SUFFIX, SUFFIXES, registers_operators
from . import compile_commands, emulation
from .native import INCLUDE_DIRECTORY, NativeFunction, exported_functions

ABIS = ("stable", "torch")
_STABLE_ONLY = "TORCH_STABLE_ONLY"  # in what torch's other headers say when they are included nevertheless
_NOT_STABLE = (
    "a source includes a header that is no part of torch's stable ABI. Include <opsmith/kernel.h> in its place, or "
    'build with abi="torch", for one torch and one Python'
)

registry: dict[str, Extension] = {}


def extension(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
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

    A source that has not changed is not compiled again, in this process or another: objects and libraries are cached by
    content. A function is exported by OPSMITH_EXPORT of <opsmith/kernel.h>, and torch's dispatcher calls it with no
    Python between.

    Args:
        name: what messages call it; for abi="torch" also the Python module's name.
        sources: .cpp and .cu files, and objects (.o, .a). Relative ones start at the current directory, else at that of
            the calling file.
        cuda: False leaves .cu files out and OPSMITH_WITH_CUDA undefined. None: True if there are any, unless the
            environment says USE_CUDA=0.
        arch: GPUs to compile for, "sm_90" or several. None: GPU_TARGETS of the environment, else this machine's GPUs,
            else one architecture of each generation.
        extra_cflags, extra_cuda_cflags: for the C++ compiler and for nvcc; -l and -L among them reach the linker.
        debug: without optimisation, for a debugger. DEBUG=1 of the environment does the same.
        abi: "stable": torch's stable ABI, one binary for every torch since 2.11 and every Python. "torch": the C++ API
            of the installed torch (torch/extension.h); the functions of a PYBIND11_MODULE are attributes.
        lazy: build at the first use of a function, and not now.
    """
    caller = sys._getframe(1).f_globals
    made = Extension(
        name,
        _paths(name, sources, caller.get("__file__")),
        module=str(caller.get("__name__")),
        cuda=cuda,
        arch=arch,
        extra_cflags=extra_cflags,
        extra_cuda_cflags=extra_cuda_cflags,
        debug=debug,
        abi=abi,
    )
    if not lazy:
        made.build()
    return made


class Extension:
    """What `opsmith.extension` returns: the functions that its library exports are its attributes."""

    def __init__(
        self,
        name: str,
        sources: Sequence[Path],
        *,
        module: str,
        cuda: bool | None,
        arch: str | Sequence[str] | None,
        extra_cflags: Sequence[str],
        extra_cuda_cflags: Sequence[str],
        debug: bool,
        abi: str,
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ExtensionArgumentError(name, "its name is letters, digits and underscores, and no digit first")
        if abi not in ABIS:
            raise ExtensionArgumentError(name, f"abi={abi!r} is not one of {', '.join(map(repr, ABIS))}")
        for option, flags in (("extra_cflags", extra_cflags), ("extra_cuda_cflags", extra_cuda_cflags)):
            if isinstance(flags, str):
                raise ExtensionArgumentError(name, f'{option} is a list of flags: write ["{flags}"]')
            if forced := [flag for flag in flags if flag.startswith(("-include", "-imacros", "--pre-include"))]:
                raise ExtensionArgumentError(
                    name, f"{option} has {forced[0]}: an edit of that header would not be noticed. Write its #include "
                    "into the sources"
                )  # fmt: skip
        self.name = name
        self.sources = tuple(sources)
        self._module = module
        self._settings = (cuda, arch, tuple(extra_cflags), tuple(extra_cuda_cflags), debug, abi)
        self._lock = threading.RLock()
        self._path: Path | None = None
        self._python: ModuleType | None = None
        former = registry.get(name)
        if former is not None and former._module != module:
            raise ExtensionNameTakenError(name, former._module, former.sources)
        registry[name] = self

    @property
    def built(self) -> bool:
        return self._path is not None

    def build(self) -> Path:
        """Builds and loads the library unless that is done, and tells where it is. `lazy=True` leaves this to the first
        use of a function."""
        with self._lock:
            if self._path is None:
                recipe = self._recipe()
                compile_commands.write(recipe)
                try:
                    path = build_library(recipe)
                except CompileError as error:
                    if recipe.abi == "stable" and _STABLE_ONLY in error.log:
                        raise ExtensionArgumentError(self.name, _NOT_STABLE) from error
                    raise
                self._load(path)
                self._path = path
            return self._path

    def _recipe(self) -> Recipe:
        cuda, arch, cflags, cuda_cflags, debug, abi = self._settings
        with_cuda = self._with_cuda(cuda)
        sources = [source for source in self.sources if with_cuda or source.suffix != CUDA_SUFFIX]
        if not sources:
            raise ExtensionArgumentError(
                self.name, "all its sources are .cu files, and CUDA is switched off (cuda=False or USE_CUDA=0)"
            )
        return Recipe(
            self.name,
            tuple(sources),
            abi=abi,  # type: ignore[arg-type]
            targets=gpu_targets(arch) if with_cuda else (),
            cflags=cflags,
            cuda_cflags=cuda_cflags,
            system_dirs=(INCLUDE_DIRECTORY,),
            debug=debug or bool(switch("DEBUG")),
            label=f"the extension {self.name}",
        )

    def is_emulated(self) -> bool:
        """Whether `emulate` runs its functions for the GPU. Not without CUDA sources, nor on the C++ API of one torch;
        and not where they register operators, which torch takes once a process."""
        cuda, *_, abi = self._settings
        return (
            abi == "stable"
            and cuda is not False
            and any(source.suffix == CUDA_SUFFIX for source in self.sources)
            and not any(_REGISTRATION.search(_text(source)) for source in self.sources if source.suffix not in COMPILED)
        )

    def emulator_recipe(self) -> Recipe:
        """What the emulator compiles, by the machine's C++ compiler: there are no GPUs to compile for."""
        _, _, cflags, cuda_cflags, _, _ = self._settings
        return Recipe(
            self.name,
            self.sources,
            cflags=cflags,
            cuda_cflags=cuda_cflags,
            system_dirs=(INCLUDE_DIRECTORY,),
            label=f"the extension {self.name} for the emulator",
        )

    def _with_cuda(self, asked: bool | None) -> bool:
        if asked is not None:
            return asked
        return switch("USE_CUDA") is not False and any(source.suffix == CUDA_SUFFIX for source in self.sources)

    def _load(self, path: Path) -> None:
        _refuse_second_registration(self.name, self.sources, path)
        if f"PyInit_{self.name}" in defined_symbols(path):
            # A name for each build (Python looks at its last part): pybind11 gives the same module for the same name.
            name = f"opsmith_extensions.{path.parent.name}.{self.name}"
            loader = importlib.machinery.ExtensionFileLoader(name, str(path))
            spec = importlib.util.spec_from_file_location(name, path, loader=loader)
            assert spec is not None
            self._python = importlib.util.module_from_spec(spec)
            loader.exec_module(self._python)
        else:
            load_library(path)

    def exports(self) -> list[str]:
        """The functions there are; as long as nothing is built, those that the sources name."""
        if self._path is None:
            texts = [_text(source) for source in self.sources]
            return sorted({name for text in texts for name in re.findall(r"\bOPSMITH_EXPORT\(\s*(\w+)", text)})
        public = [name for name in dir(self._python) if not name.startswith("_")] if self._python else []
        return sorted({*exported_functions(self._path), *public})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_path" not in self.__dict__:
            raise AttributeError(name)
        if not self.built and self._settings[-1] == "stable":
            return ExtensionFunction(self, name)
        path = self.build()
        if self._python is not None and hasattr(self._python, name):
            return getattr(self._python, name)
        if name not in exported_functions(path):
            raise self._unknown(name)
        return ExtensionFunction(self, name)

    def _unknown(self, name: str) -> UnknownFunctionError:
        left_out = [s.name for s in self.sources if s.suffix == CUDA_SUFFIX and not self._with_cuda(self._settings[0])]
        return UnknownFunctionError(self.name, name, self.exports(), left_out)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.exports()})

    def __repr__(self) -> str:
        names = ", ".join(source.name for source in self.sources)
        return f"<extension {self.name} of {names}: {', '.join(self.exports()) or 'exports nothing'}>"


class ExtensionFunction(NativeFunction):
    """A function of an extension, built when its address is asked for."""

    def __init__(self, extension: Extension, symbol: str) -> None:
        self.extension = extension
        self.symbol = symbol

    @property
    def path(self) -> Path:
        return self.extension.build()

    @property
    def ready(self) -> bool:
        return self.extension.built

    def unknown(self) -> OpsmithError:
        return self.extension._unknown(self.symbol)

    def emulated(self) -> NativeFunction | None:
        if not self.extension.is_emulated():
            return None
        return emulation.cuda_emulator().function(self)

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
        raise ExtensionArgumentError(name, f"{source} is no source file: those end in {', '.join(SUFFIXES)}")
    beside = [Path(caller).absolute().parent / source] if caller else []
    for place in (source.absolute(), *beside):
        if place.is_file():
            return place
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
_registering: dict[str, Path] = {}  # by extension, the build whose operators this process has


def _refuse_second_registration(name: str, sources: Sequence[Path], path: Path) -> None:
    """Torch throws where a namespace is claimed, or an operator defined, for a second time. From a library that is
    being loaded nobody can catch that, and the process would end."""
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
        # What the text does not show, a macro's or a header's, shows in the library.
        if _registering.setdefault(name, path) != path:
            raise OperatorsRegisteredError(name, "operators")
    _loaded.add(path)


def _is_free(namespace: str) -> bool:
    try:
        torch.library.Library(namespace, "DEF")._destroy()
    except (RuntimeError, ValueError):  # the second for names that torch keeps for itself
        return False
    return True
