"""CudaSource: CUDA C++ whose kernels are launched by name, with no host code and no binding."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...cuda_text.parameters import Parameter
from ...errors import AmbiguousKernelError, KernelNotFoundError, NoGpuError, OpsmithError
from ...launch.driver import available, driver
from ...toolchain.cache import search_package_of
from .. import emulation
from . import constants as values
from .attributes import Attributes
from .build import Build, Settings, build, listing, not_an_instance
from .constants import Constants
from .launch import Kernel
from .module import Function, Module
from .origin import Origin, Snapshot, locate, take

_SPELLING = re.compile(r"^(?P<base>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?P<arguments><[^;{}#\"\n]*>)?$")


def cuda_source(
    path_or_text: str | os.PathLike[str],
    *,
    options: str | Sequence[str] = (),
    include_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
) -> CudaSource:
    """CUDA C++ as kernels to launch from Python.

    >>> cu = opsmith.cuda_source("scale.cu")        # or the text itself
    >>> cu.scale[blocks, threads](x, y, 2.0, n)     # checked against the kernel's signature
    >>> cu["scale<float, 4>"][blocks, threads](x, y, 2.0, n)        # an instance of a template

    NVRTC compiles at the first launch, for the current GPU, and the result is cached on disk. After an edit of the
    file, or of a header that it includes, the next launch recompiles. opsmith's headers are on the include path.

    Args:
        path_or_text: a file, relative to the current directory or else to the calling Python file; or the source.
        options: NVRTC's options, such as "--use_fast_math".
        include_dirs: directories of headers, relative like the file.
        defines: macros; None for one without a value.
    """
    if isinstance(options, str):
        options = (options,)
    if isinstance(include_dirs, (str, os.PathLike)):
        include_dirs = (include_dirs,)
    caller = sys._getframe(1)
    search_package_of(str(caller.f_globals.get("__name__")))
    return CudaSource(locate(path_or_text, caller), options, include_dirs, defines or {})


@dataclass(frozen=True)
class CompiledSource(os.PathLike[str]):
    """The plain kernels of a source compiled for an architecture: the cubin, and what each needs of a GPU."""

    path: Path
    arch: str
    attributes: Mapping[str, Attributes]

    def __fspath__(self) -> str:
        return str(self.path)


class CudaSource:
    """What `opsmith.cuda_source` returns. `cu.name` and `cu["ns::name"]` are its kernels, `cu["name<float>"]` an
    instance of a template."""

    def __init__(
        self,
        origin: Origin,
        options: Sequence[str],
        include_dirs: Sequence[str | os.PathLike[str]],
        defines: Mapping[str, object],
    ) -> None:
        self._given = (origin, tuple(options), tuple(os.fspath(each) for each in include_dirs), tuple(defines.items()))
        self._origin = origin
        self._settings = Settings(origin.python_file, options, include_dirs, defines)
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        self._named: dict[str, Kernel] = {}
        self._spelled: dict[str, Kernel] = {}  # the same by every spelling met
        self._modules: dict[tuple[str, str | None, str], Module] = {}
        self._constants = Constants()

    @property
    def label(self) -> str:
        """The source in messages: its file's name, or the place of the call with its text."""
        return self._origin.label

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels in the text, templates among them."""
        return list(self._current().found.kernels)

    @property
    def instances(self) -> list[str]:
        """The instances of templates that have been used so far."""
        return [name for name in self._named if "<" in name]

    def compile(self, arch: str | None = None) -> CompiledSource:
        """Compiles all kernels that are not templates, for an architecture ("sm_90"), by default that of the current
        GPU. Needs no GPU. An instance of a template has its own `compile`: cu["scale<float>"].compile()."""
        built = self._build_for(None, arch)
        return CompiledSource(built.path, built.arch, {name: built.attributes(name) for name in built.spellings})

    def set_constant(self, name: str, value: Any) -> None:
        """Sets a __constant__ variable, in the order of torch's current stream.

        `value` is a tensor of the variable's dtype and number of elements, or numbers; for a struct, a ctypes.Structure
        or bytes. A CUDA tensor sets the variable on its device, any other value on every device. It holds for kernels
        compiled later too.
        """
        if emulation.state.active:
            emulation.cuda_emulator().set_constant(self, name, value)
            return
        if not available():
            raise NoGpuError(
                f"The __constant__ {name!r} of {self.label} cannot be set",
                "this machine has no GPU that torch can use",
                "Its value is in a GPU's memory. Set it inside `with opsmith.emulate():` to run on the CPU.",
            )
        cuda = driver()
        if cuda.torch.capturing():
            raise self._current().constant_error(
                name,
                "cannot be set while a CUDA graph is captured: a replay would not set it again. Set it before the "
                "capture, or pass the values to the kernel in a tensor",
            )
        on_gpu = isinstance(value, torch.Tensor) and value.get_device() >= 0
        index = value.get_device() if on_gpu else cuda.torch.current_device()
        with self._lock:
            built = self._module(None, self._arch_of(index)).build
            if name not in built.constants:
                raise values.not_declared(built.snapshot, name, built.constants)
            held = values.held(built.snapshot, name, built.constants[name], value, cuda)
            self._constants.set(name, held, index if on_gpu else None)
            fingerprint = built.snapshot.fingerprint
            for (of, _, _), module in list(self._modules.items()):
                for device in list(module.devices) if of == fingerprint else []:
                    if not on_gpu or device == index:
                        module.set_constant(name, held, device)

    # --- kernels by name --------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__") or "_named" not in self.__dict__:  # protocols that look for a method, and unpickling
            raise AttributeError(name)
        kernel = self[name]
        self.__dict__[name] = kernel
        return kernel

    def __getitem__(self, spelling: str) -> Kernel:
        if (known := self._spelled.get(spelling)) is not None:
            return known
        if not isinstance(spelling, str):
            raise KernelNotFoundError(repr(spelling), self.label, listing(self._current()))
        with self._lock:
            name = self._checked(spelling)
            self._spelled[spelling] = self._named.setdefault(name, Kernel(self, name))
            return self._spelled[spelling]

    def _checked(self, spelling: str) -> str:
        """The normal form of a spelling, `scale<float, 4>` for `scale< float,4 >`. Raises if it can name no kernel."""
        snapshot = self._current()
        parts = _SPELLING.match(spelling.strip())
        if parts is None:
            raise KernelNotFoundError(spelling, self.label, listing(snapshot))
        base, found = parts["base"], snapshot.found
        # A name that the text does not declare as a kernel may be declared by a macro: the compiler decides.
        if base not in found.kernels and not found.words.issuperset(base.split("::")):
            raise KernelNotFoundError(spelling, self.label, listing(snapshot))
        if parts["arguments"] is None:
            return base
        if base in found.kernels and found.kernels[base].template is None:
            raise not_an_instance(spelling, snapshot, "has template arguments, and the kernel is not a template")
        if found.variables:
            raise AmbiguousKernelError(
                spelling,
                self.label,
                "is an instance of a template, and the source has __device__ variables that kernels may write: "
                f"{', '.join(found.variables)}. Each instance is compiled separately, with variables that no other "
                "kernel sees",
                "Pass a tensor to the kernels instead, or declare the variables const if no kernel writes them.",
                snapshot.declared("__device__", found.variables[0]),
            )
        return base + _tidy(parts["arguments"])

    def _require_instance(self, name: str) -> None:
        """Raises for a template that is named without its arguments."""
        text = self._current().found.kernels.get(name)
        if text is not None and text.template is not None:
            raise not_an_instance(name, self._current(), f"is a template over {', '.join(text.template)}")

    def _parameters(self, name: str) -> tuple[Parameter, ...]:
        text = self._current().found.kernels.get(name.partition("<")[0])
        return text.parameters if text is not None else ()

    # --- builds -----------------------------------------------------------------------------------------------

    def _current(self) -> Snapshot:
        """The source as it is now; as it was last, while a graph is being captured."""
        with self._lock:
            known = self._snapshot
            if known is None or (known.changed() and not (available() and driver().torch.capturing())):
                self._snapshot = take(self._origin, self._settings.include_dirs, self._settings.pre_included)
            assert self._snapshot is not None
            return self._snapshot

    def _arch_of(self, index: int) -> str:
        return self._settings.arch or driver().architecture(index)

    def _build_for(self, name: str | None, arch: str | None) -> Build:
        if arch is None and self._settings.arch is None and not available():
            raise NoGpuError(
                f"{name or self.label} cannot be compiled",
                "no architecture is given, and this machine has no GPU to take it from",
                'Give one: compile(arch="sm_90")',
            )
        arch = arch or self._settings.arch or driver().architecture(driver().torch.current_device())
        with self._lock:
            built = self._module(self._current().unit(name), arch).build
        if name is not None:
            built.require(name)
        return built

    def _module(self, unit: str | None, arch: str) -> Module:
        """The build of a unit for an architecture, made once for the source as it is."""
        snapshot = self._current()
        key = (snapshot.fingerprint, unit, arch)
        if key not in self._modules:
            self._modules[key] = Module(build(snapshot, self._settings, arch, unit))
        return self._modules[key]

    def _function(self, name: str, index: int) -> tuple[Function, Callable[[], bool] | None]:
        """A kernel on a device, and a function that returns whether its source has changed; None if it cannot."""
        with self._lock:
            snapshot = self._current()
            function = self._module(snapshot.unit(name), self._arch_of(index)).function(name, index, self._constants)
        return function, snapshot.changed if snapshot.watched else None

    # --- identity ---------------------------------------------------------------------------------------------

    def __dir__(self) -> list[str]:
        try:
            return sorted({*super().__dir__(), *(name for name in self.kernels if name.isidentifier())})
        except OpsmithError:  # the file is gone
            return sorted(super().__dir__())

    def __repr__(self) -> str:
        try:
            found = ", ".join(listing(self._current())) or "no kernels"
        except OpsmithError as error:
            found = str(error).splitlines()[0]
        return f"<CudaSource {self.label}: {found}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaSource) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given[:3])

    def __reduce__(self) -> tuple[type[CudaSource], tuple[Any, ...]]:
        *given, defines = self._given
        return CudaSource, (*given, dict(defines))


def _tidy(arguments: str) -> str:
    """Template arguments with spaces where they are needed and nowhere else."""
    tight = re.sub(r"\s*([^\w\s])\s*", r"\1", re.sub(r"\s+", " ", arguments))
    return tight.replace(",", ", ")
