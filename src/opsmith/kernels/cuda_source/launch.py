"""A kernel by its name, and a launch of it: cu.scale[grid, block, shared](x, y, n)."""

from __future__ import annotations

import ctypes
import math
import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import KernelArgumentError, LaunchError, LaunchGeometryError, NoGpuError
from ...launch.driver import INVALID_CONTEXT, Configuration, available, driver
from .. import emulation
from .attributes import MAX_THREADS, Attributes
from .module import Function
from .parameters import Place, on_no_gpu, refuse_tensor

if TYPE_CHECKING:
    from .source import CudaSource

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
_REMEMBERED = 1024


@dataclass(frozen=True)
class CompiledKernel(os.PathLike[str]):
    """A kernel compiled for an architecture: the cubin it is in, and what it needs of a GPU."""

    path: Path
    arch: str
    attributes: Attributes

    def __fspath__(self) -> str:
        return str(self.path)


class Kernel:
    """A __global__ function of a CudaSource, or an instance of a template.

    `kernel[grid, block]` and `kernel[grid, block, shared]` are launches, to be called with the kernel's arguments. Grid
    and block are numbers or tuples of up to three; shared is the dynamic shared memory of a block in bytes.
    """

    def __init__(self, source: CudaSource, name: str) -> None:
        self.source = source
        self.name = name
        self._launches: dict[Any, Launch] = {}

    def __getitem__(self, key: Any) -> Launch:
        try:
            return self._launches[key]
        except (KeyError, TypeError):  # not met before, or a list
            return self._launch(key)

    def _launch(self, key: Any) -> Launch:
        self.source._require_instance(self.name)
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise LaunchGeometryError(
                self.name, "a launch is kernel[grid, block](...) or kernel[grid, block, shared](...), shared in bytes"
            )
        launch = Launch(self, *key)
        try:
            if len(self._launches) >= _REMEMBERED:
                self._launches.clear()
            self._launches[key] = launch
        except TypeError:
            pass
        return launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchGeometryError(
            self.name, f"it is launched with a grid and a block, as in cu.{self.name}[blocks, threads](...)"
        )

    def compile(self, arch: str | None = None) -> CompiledKernel:
        """Compiles for an architecture ("sm_90"), that of the current GPU if none is given. Needs no GPU."""
        self.source._require_instance(self.name)
        built = self.source._build_for(self.name, arch)
        return CompiledKernel(built.path, built.arch, built.attributes(self.name))

    @property
    def attributes(self) -> Attributes:
        """What the kernel takes of the current GPU: registers, spills, shared memory, the largest block."""
        if not available():
            raise NoGpuError(
                f"The attributes of {self.name} are asked of a GPU",
                "this machine has none that torch can use",
                f'Name an architecture instead: cu["{self.name}"].compile(arch="sm_90").attributes',
            )
        self.source._require_instance(self.name)
        return self.source._function(self.name, driver().torch.current_device())[0].attributes

    @property
    def signature(self) -> str:
        """The kernel as its author declared it."""
        return self.source._declaration(self.name)

    def __repr__(self) -> str:
        return f"<CUDA kernel {self.signature} of {self.source.label}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and (self.source, self.name) == (other.source, other.name)

    def __hash__(self) -> int:
        return hash((self.source, self.name))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return operator.getitem, (self.source, self.name)


class _Ready:
    """A launch on one device with nothing left to find out but the arguments."""

    __slots__ = ("_configurations", "_launch", "changed", "driver", "handle", "launch_kernel", "pack", "return_frame")

    def __init__(self, function: Function, changed: Callable[[], bool] | None, launch: Launch) -> None:
        self.driver = function.driver
        self.handle = function.handle
        self.launch_kernel = function.driver.launch_kernel
        self.pack = function.plan.pack
        self.return_frame = function.plan.frames.append
        self.changed = changed
        self._launch = launch
        self._configurations: dict[int, tuple[int, Configuration]] = {}

    def configuration(self, stream: int) -> int:
        """The address of the launch's shape on a stream: read-only, so that threads may share it."""
        try:
            return self._configurations[stream][0]
        except KeyError:
            made = self.driver.configuration(self._launch.grid, self._launch.block, self._launch.shared, stream)
            if len(self._configurations) >= _REMEMBERED:
                self._configurations = {}
            self._configurations[stream] = ctypes.addressof(made), made
            return self._configurations[stream][0]


class Launch:
    """A kernel with a grid and a block: call it with the kernel's arguments.

    They go to torch's current stream of the tensors' device, and nothing is waited for. Raises KernelArgumentError or
    KernelValueError for arguments that the kernel does not take, LaunchGeometryError for a block that it cannot have,
    LaunchError for what the driver refuses.
    """

    def __init__(self, kernel: Kernel, grid: Any, block: Any, shared: Any = 0) -> None:
        self.kernel = kernel
        self.grid = _extent(kernel.name, "grid", grid, MAX_GRID)
        self.block = _extent(kernel.name, "block", block, MAX_BLOCK)
        self.shared = _bytes(kernel.name, shared)
        self.threads = math.prod(self.block)
        if self.threads > MAX_THREADS:
            raise LaunchGeometryError(
                kernel.name,
                f"a block of {_told(self.block)} is {self.threads} threads; a block has at most {MAX_THREADS}",
            )
        self._ready: dict[int, _Ready] = {}

    def __call__(self, *args: Any) -> None:
        for value in args:
            if isinstance(value, torch.Tensor):
                index = value.get_device()
                break
        else:
            index = -1
        if index < 0:
            if emulation.state.active:
                self._emulate(args)
                return
            index = self._device(args)
        ready = self._ready.get(index)
        if ready is None or (ready.changed is not None and ready.changed()):
            ready = self._prepare(index)
        cuda = ready.driver
        configuration = ready.configuration(cuda.current_stream(index))
        frame = ready.pack(args, index)
        if cuda.several_devices:
            code = cuda.launch(ready.handle, configuration, frame[1], index)
        else:
            code = ready.launch_kernel(configuration, ready.handle, frame[1], None)
            if code == INVALID_CONTEXT:  # a thread that has not used the GPU yet
                code = cuda.launch(ready.handle, configuration, frame[1], index)
        ready.return_frame(frame)
        if code:
            raise LaunchError(self.kernel.name, str(self), code, cuda.words(code))

    def _emulate(self, args: Sequence[Any]) -> None:
        emulation.cuda_emulator().launch(self, args)

    def _prepare(self, index: int) -> _Ready:
        function, changed = self.kernel.source._function(self.kernel.name, index)
        with self.kernel.source._lock:
            function.allow(self.threads, self.shared)
        self._ready[index] = _Ready(function, changed, self)
        return self._ready[index]

    def _device(self, args: Sequence[Any]) -> int:
        """The device of a launch whose first tensor is on none, or which has none: any other tensor's, or the current
        one. What a tensor on the CPU is refused for is told by its parameter."""
        if available():
            found = [value.get_device() for value in args if isinstance(value, torch.Tensor)]
            return next((index for index in found if index >= 0), driver().torch.current_device())
        written = self.kernel.source._parameters(self.kernel.name)
        if written and len(args) != len(written):
            what = f"it takes {len(written)} argument{'' if len(written) == 1 else 's'}, not {len(args)}"
            raise KernelArgumentError(self.kernel.name, what, self.kernel.signature)
        for position, (value, each) in enumerate(zip(args, written, strict=False)):
            place = Place(self.kernel.name, self.kernel.signature, position, each.name, each.text)
            if isinstance(value, torch.Tensor) and "*" in each.text:
                raise on_no_gpu(place, value)
            if "*" not in each.text:
                refuse_tensor(place, value)
        raise NoGpuError(
            f"{self.kernel.name} cannot be launched",
            "this machine has no GPU that torch can use",
            "`opsmith doctor` tells what it has; cu.compile(arch=...) compiles without one.",
        )

    def __str__(self) -> str:
        shared = f" and {self.shared} bytes of shared memory" if self.shared else ""
        return f"a grid of {_told(self.grid)}, blocks of {_told(self.block)}{shared}"

    def __repr__(self) -> str:
        return f"<launch of {self.kernel.name} with {self}>"


def _extent(kernel: str, what: str, given: Any, limits: Sequence[int]) -> tuple[int, int, int]:
    """Three numbers from a number or up to three, each within its limit."""
    parts = list(given) if isinstance(given, (tuple, list)) else [given]
    if not 1 <= len(parts) <= 3:
        raise LaunchGeometryError(kernel, f"a {what} is a number or up to three, not {given!r}")
    numbers = []
    for part in parts:
        if isinstance(part, float):
            raise LaunchGeometryError(
                kernel, f"a {what} is made of whole numbers, not {part!r}; -(-n // 256) divides and rounds up"
            )
        try:
            numbers.append(operator.index(part))
        except TypeError:
            raise LaunchGeometryError(
                kernel, f"a {what} is made of whole numbers, not of {type(part).__name__} ({part!r})"
            ) from None
    for number, limit, axis in zip(numbers, limits, "xyz", strict=False):
        if number < 1:
            advice = " There is nothing to do for an empty tensor: do not launch" if what == "grid" else ""
            raise LaunchGeometryError(kernel, f"the {what} {_told(numbers)} has {number} along {axis}, none.{advice}")
        if number > limit:
            raise LaunchGeometryError(kernel, f"the {what} {_told(numbers)} has {number} along {axis}, at most {limit}")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z


def _bytes(kernel: str, shared: Any) -> int:
    try:
        number = operator.index(shared)
    except TypeError:
        raise LaunchGeometryError(kernel, f"shared memory is a number of bytes, not {shared!r}") from None
    if not 0 <= number < 2**31:
        raise LaunchGeometryError(kernel, f"{number} bytes of shared memory cannot be had")
    return number


def _told(extent: Sequence[int]) -> str:
    numbers = list(extent)
    while len(numbers) > 1 and numbers[-1] == 1:
        numbers.pop()
    return str(numbers[0]) if len(numbers) == 1 else f"({', '.join(map(str, numbers))})"
