"""A kernel by its name, and a launch of it: cu.scale[grid, block, shared, cluster](x, y, n)."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import KernelArgumentError, LaunchConfigurationError, LaunchError, NoGpuError
from ...launch.driver import INVALID_CONTEXT, Configuration, available, driver
from .. import emulation
from ..configuration import LaunchConfiguration, launch_configuration
from .attributes import Attributes
from .module import Function
from .parameters import Place, not_on_gpu, refuse_tensor
from .plan import miscounted

if TYPE_CHECKING:
    from .source import CudaSource

_REMEMBERED = 1024


@dataclass(frozen=True)
class CompiledKernel(os.PathLike[str]):
    """A kernel compiled for an architecture: the cubin that holds it, and what it needs of a GPU."""

    path: Path
    arch: str
    attributes: Attributes

    def __fspath__(self) -> str:
        return str(self.path)


class Kernel:
    """A __global__ function of a CudaSource, or an instance of a template.

    `kernel[grid, block]`, `kernel[grid, block, shared]` and `kernel[grid, block, shared, cluster]` are launches, to be
    called with the kernel's arguments. Grid, block and cluster are numbers or tuples of up to three; shared is the
    dynamic shared memory of a block in bytes, and a cluster has as many blocks (sm_90 and later).
    """

    def __init__(self, source: CudaSource, name: str) -> None:
        self.source = source
        self.name = name
        self._launches: dict[Any, Launch] = {}

    def __getitem__(self, key: Any) -> Launch:
        try:
            return self._launches[key]
        except (KeyError, TypeError):  # new, or a list
            return self._launch(key)

    def _launch(self, key: Any) -> Launch:
        self.source._require_instance(self.name)
        launch = Launch(self, launch_configuration(self.name, key))
        try:
            if len(self._launches) >= _REMEMBERED:
                self._launches.clear()
            self._launches[key] = launch
        except TypeError:
            pass
        return launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchConfigurationError(
            self.name, f"a launch needs a grid and a block: cu.{self.name}[blocks, threads](...)"
        )

    def compile(self, arch: str | None = None) -> CompiledKernel:
        """Compiles for an architecture ("sm_90"), by default that of the current GPU. Needs no GPU."""
        self.source._require_instance(self.name)
        built = self.source._build_for(self.name, arch)
        return CompiledKernel(built.path, built.arch, built.attributes(self.name))

    @property
    def attributes(self) -> Attributes:
        """What the kernel needs of the current GPU: registers, spills, shared memory, the largest block."""
        if not available():
            raise NoGpuError(
                f"The attributes of {self.name} are not known",
                "this machine has no GPU that torch can use",
                f'Name an architecture instead: cu["{self.name}"].compile(arch="sm_90").attributes',
            )
        self.source._require_instance(self.name)
        return self.source._function(self.name, driver().torch.current_device())[0].attributes

    @property
    def signature(self) -> str:
        """The kernel as its author declared it."""
        return f"{self.name}({', '.join(each.text for each in self.source._parameters(self.name))})"

    def __repr__(self) -> str:
        return f"<CUDA kernel {self.signature} of {self.source.label}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and (self.source, self.name) == (other.source, other.name)

    def __hash__(self) -> int:
        return hash((self.source, self.name))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return operator.getitem, (self.source, self.name)


class _Ready:
    """A launch on one device, prepared except for the arguments."""

    __slots__ = (
        "_configuration", "_configurations", "changed", "driver", "handle", "launch_kernel", "pack", "plan",
        "return_frame",
    )  # fmt: skip

    def __init__(
        self, function: Function, changed: Callable[[], bool] | None, configuration: LaunchConfiguration
    ) -> None:
        self.driver = function.driver
        self.handle = function.handle
        self.launch_kernel = function.driver.launch_kernel
        self.plan = function.plan
        self.pack = function.plan.pack
        self.return_frame = function.plan.frames.append
        self.changed = changed
        self._configuration = configuration
        self._configurations: dict[int, tuple[int, Configuration]] = {}

    def configuration(self, stream: int) -> int:
        """The address of the driver's configuration on a stream: read-only, so that threads may share it."""
        try:
            return self._configurations[stream][0]
        except KeyError:
            grid, block, shared, cluster = self._configuration
            made = self.driver.configuration(grid, block, shared, stream, cluster=cluster)
            if len(self._configurations) >= _REMEMBERED:
                self._configurations = {}
            self._configurations[stream] = ctypes.addressof(made), made
            return self._configurations[stream][0]


class Launch:
    """A kernel with a grid and a block: call it with the kernel's arguments.

    The launch is queued on torch's current stream of the tensors' device and not waited for. Raises KernelArgumentError
    or KernelValueError for arguments that the kernel does not take, LaunchConfigurationError for a block that it cannot
    have, LaunchError if the driver refuses the launch.
    """

    def __init__(self, kernel: Kernel, configuration: LaunchConfiguration) -> None:
        self.kernel = kernel
        self.configuration = configuration
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
                emulation.cuda_emulator().launch(self, args)
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
            declared = ready.plan.declared()
            raise LaunchError(self.kernel.name, str(self.configuration), code, cuda.error_text(code), declared)

    def _prepare(self, index: int) -> _Ready:
        function, changed = self.kernel.source._function(self.kernel.name, index)
        with self.kernel.source._lock:
            function.allow(self.configuration)
            function.allow_cluster(self.configuration)
        self._ready[index] = _Ready(function, changed, self.configuration)
        return self._ready[index]

    def _device(self, args: Sequence[Any]) -> int:
        """The device of a launch whose first tensor is not on a GPU, or that has no tensors: another tensor's, or the
        current one. Packing then refuses the CPU tensor by its parameter's name."""
        if available():
            found = [value.get_device() for value in args if isinstance(value, torch.Tensor)]
            return next((index for index in found if index >= 0), driver().torch.current_device())
        name, source, signature = self.kernel.name, self.kernel.source, self.kernel.signature
        written = source._parameters(name)
        declared = functools.partial(source._current().declared, "__global__", name, signature)
        if written and len(args) != len(written):
            raise KernelArgumentError(name, miscounted([each.name for each in written], len(args)), declared())
        for position, (value, each) in enumerate(zip(args, written, strict=False)):
            place = Place(name, declared, position, each.name, each.text)
            if isinstance(value, torch.Tensor) and "*" in each.text:
                raise not_on_gpu(place, value)
            if "*" not in each.text:
                refuse_tensor(place, value)
        raise NoGpuError(
            f"{name} cannot be launched",
            "this machine has no GPU that torch can use",
            "`opsmith doctor` shows the reason. cu.compile(arch=...) and opsmith.emulate() need no GPU.",
        )

    def __repr__(self) -> str:
        return f"<launch of {self.kernel.name} with {self.configuration}>"
