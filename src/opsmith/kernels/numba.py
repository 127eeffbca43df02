"""Numba CUDA kernels on torch tensors: zero-copy, on torch's current stream, on the tensors' device.

A launch `kernel[grid, block](x, out)` of Numba's own goes to Numba's default stream. Work that torch has queued on
another stream is then not waited for, and nobody notices: a race. `numba_kernel` launches where torch works.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import (
    CpuTensorError,
    DeviceMixError,
    KernelArgumentError,
    KernelValueError,
    LaunchGeometryError,
    NumbaDeviceFunctionError,
    NumbaKernelTypeError,
    NumbaLaunchError,
    NumbaStreamError,
    OpsmithError,
    described,
)
from . import emulation
from .emulation import Grid
from .substitution import reached

LANGUAGE = "Numba"
PACKAGE = "numba-cuda"

DTYPES = frozenset({
    torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
})  # fmt: skip
"""What Numba can read. It knows no bfloat16."""

MOST_THREADS = 1024
MOST_IN_BLOCK = (1024, 1024, 64)
MOST_IN_GRID = (2**31 - 1, 65535, 65535)
REMEMBERED = 1024  # geometries of a kernel that are ready to launch


def numba_kernel(kernel: Any) -> NumbaKernel:
    """A kernel made by @numba.cuda.jit, launched on torch tensors.

    >>> @opsmith.numba_kernel
    ... @numba.cuda.jit
    ... def add(x, out, n): ...
    >>> add[grid, block](x, out, n)

    `add[grid, block]` or `add[grid, block, shared]` with bytes of dynamic shared memory; grid and block are a number or
    up to three. Tensors are passed as they are, strided ones with their strides; the launch goes to torch's current
    stream of their device and is not waited for. An empty grid launches nothing. Inside `opsmith.emulate` it runs on
    CPU tensors, in Numba's simulator.
    """
    return NumbaKernel(kernel)


class NumbaKernel:
    """What `numba_kernel` returns."""

    def __init__(self, kernel: Any) -> None:
        function = getattr(kernel, "py_func", None)
        if isinstance(kernel, NumbaKernel) or not callable(function) or not hasattr(kernel, "__getitem__"):
            raise NumbaKernelTypeError("numba_kernel", given=_named(kernel))
        if getattr(kernel, "targetoptions", {}).get("device") or getattr(kernel, "_device", False):
            raise NumbaDeviceFunctionError("numba_kernel", given=described(function), function=function)
        mend_numpy()
        self.kernel = kernel
        self.__name__ = function.__name__
        self.py_func: Callable[..., Any] = function
        self.signature = inspect.signature(function)
        self._configurations: dict[tuple[Any, ...], Any] = {}
        functools.update_wrapper(self, function)

    def __str__(self) -> str:
        return f"the Numba kernel {described(self.py_func)}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __call__(self, *args: Any) -> None:
        raise LaunchGeometryError(str(self), f"it is launched with a grid: {self.__name__}[grid, block](...)")

    def __getitem__(self, geometry: Any) -> Callable[..., None]:
        given = geometry if isinstance(geometry, tuple) else (geometry,)
        if not 2 <= len(given) <= 3 or (len(given) == 3 and not isinstance(given[2], int)):
            raise LaunchGeometryError(
                str(self), f"it is launched by [grid, block] or [grid, block, bytes of shared memory], not by "
                f"[{', '.join(map(str, given))}]; the stream is torch's current one"
            )  # fmt: skip
        grid = self._sizes("grid", given[0], MOST_IN_GRID, least=0)
        block = self._sizes("block", given[1], MOST_IN_BLOCK, least=1)
        threads = block[0] * block[1] * block[2]
        if threads > MOST_THREADS:
            raise LaunchGeometryError(str(self), f"a block has at most {MOST_THREADS} threads, not {threads}")
        shared = given[2] if len(given) == 3 else 0
        if shared < 0:
            raise LaunchGeometryError(str(self), f"shared memory is a number of bytes, not {shared}")
        return functools.partial(self._launch, grid, block, shared)

    def _sizes(self, what: str, given: Any, most: Sequence[int], least: int) -> Grid:
        listed = list(given) if isinstance(given, (tuple, list)) else [given]
        if not 1 <= len(listed) <= 3 or not all(isinstance(size, int) for size in listed):
            raise LaunchGeometryError(str(self), f"its {what} is {given!r}: give a number, or up to three")
        listed += [1] * (3 - len(listed))
        for axis, size, limit in zip("xyz", listed, most, strict=True):
            if not least <= size <= limit:
                raise LaunchGeometryError(
                    str(self), f"its {what} has {size} along {axis}, where {least} to {limit} is allowed"
                )
        return listed[0], listed[1], listed[2]

    # --- launching --------------------------------------------------------------------------------------------------

    def _launch(self, grid: Grid, block: Grid, shared: int, *args: Any) -> None:
        try:
            bound = self.signature.bind(*args)
        except TypeError as error:
            raise KernelArgumentError(str(self), str(error), self._told()) from None
        tensors = {name: value for name, value in bound.arguments.items() if isinstance(value, torch.Tensor)}
        for name, tensor in tensors.items():
            self._check(name, tensor)
        devices = {tensor.device for tensor in tensors.values()}
        if len(devices) > 1:
            raise DeviceMixError(str(self), {name: str(tensor.device) for name, tensor in tensors.items()})
        device = next(iter(devices), None)
        if device is None and not emulation.state.active:
            device = torch.device("cuda")
        if 0 in grid:
            return
        if device is not None and device.type == "cuda":
            self._launch_on(device, grid, block, shared, args)
        elif emulation.state.active:
            from .numba_simulator import simulate

            simulate(self, grid, block, shared, args)
        else:
            name = next(iter(tensors))
            raise CpuTensorError(str(self), f"{name} is on the {tensors[name].device.type}")

    def _told(self) -> str:
        return f"{self.__name__}{self.signature}"

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.dtype not in DTYPES:
            hint = ""
            if tensor.dtype is torch.bfloat16:
                hint = "; pass x.float(), or return NotImplemented, for which the reference runs"
            raise KernelArgumentError(str(self), f"Numba knows no {tensor.dtype}, which {name} is{hint}", self._told())
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            kind = "a lazily negated or conjugated" if tensor.layout is torch.strided else f"a {tensor.layout}"
            raise KernelValueError(str(self), f"{name} is {kind} tensor; pass a plain strided one", self._told())

    def _launch_on(self, device: torch.device, grid: Grid, block: Grid, shared: int, args: Sequence[Any]) -> None:
        from numba import cuda

        index = torch.cuda.current_device() if device.index is None else device.index
        geometry = f"grid {grid}, block {block}, {shared} bytes of shared memory"
        try:
            with cuda.gpus[index]:
                arrays = [_array(cuda, each) if isinstance(each, torch.Tensor) else each for each in args]
                stream = _stream(cuda, index, torch.cuda.current_stream(index).cuda_stream)
                self._configured(grid, block, stream, shared)(*arrays)
        except OpsmithError:
            raise
        except Exception as error:
            raise NumbaLaunchError(str(self), geometry, f"{type(error).__name__}: {error}") from error

    def _configured(self, *geometry: Any) -> Any:
        """Numba's launch with a geometry. That it warns of a small grid is for those who choose one: here the size of a
        tensor does."""
        configured = self._configurations.get(geometry)
        if configured is None:
            if len(self._configurations) >= REMEMBERED:
                self._configurations.clear()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Grid size")
                configured = self._configurations[geometry] = self.kernel[geometry]
        return configured


def _array(cuda: Any, tensor: torch.Tensor) -> Any:
    """A tensor's own memory as Numba's array. `sync` is about a stream that a tensor would name; torch's name none."""
    return cuda.as_cuda_array(tensor.detach(), sync=False)


_streams: dict[tuple[int, int], Any] = {}


def _stream(cuda: Any, index: int, pointer: int) -> Any:
    """Torch's stream as Numba's. The same object for the same stream, by which Numba finds a launch it has prepared."""
    stream = _streams.get((index, pointer))
    if stream is None:
        stream = _streams[index, pointer] = cuda.external_stream(pointer) if pointer else 0
    return stream


# --- what register_kernel asks --------------------------------------------------------------------------------------


def used_by(function: Any) -> bool:
    """Whether a function launches a Numba kernel. Nothing is imported to find out."""
    return bool(reached(function, lambda value: isinstance(value, NumbaKernel)))


def emulated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself: a launch sees that this thread emulates."""
    return function


def refuse_bare_launches(name: str, function: Any) -> None:
    """Refuses a function that launches a Numba kernel on Numba's own stream. Where Numba is not loaded none does."""
    module = sys.modules.get("numba.cuda.dispatcher")
    dispatcher = getattr(module, "CUDADispatcher", None)
    if dispatcher is None:
        return
    for kernel in reached(function, lambda value: isinstance(value, dispatcher)):
        if not kernel.targetoptions.get("device"):
            raise NumbaStreamError(
                name,
                launcher=described(function),
                kernel=described(kernel.py_func),
                called=kernel.py_func.__name__,
                function=function,
            )


# --- NumPy 2.5 ------------------------------------------------------------------------------------------------------

_mending = threading.Lock()
_MISSING = "row_stack"


def mend_numpy() -> bool:
    """Lets Numba compile for CUDA under NumPy 2.5, and tells whether that was needed.

    numba-cuda 0.30 looks np.row_stack up while it loads its array functions, which is before it compiles its first
    kernel. NumPy 2.5 has taken that name away, np.vstack's second. So it is lent for the time of that load."""
    if "numba.cuda" not in sys.modules:
        return False
    import numpy

    if hasattr(numpy, _MISSING):
        return False
    with _mending:
        if "numba.cuda.np.arrayobj" not in sys.modules:
            setattr(numpy, _MISSING, numpy.vstack)
            try:
                import numba.cuda.np.arrayobj  # noqa: F401
            finally:
                delattr(numpy, _MISSING)
    return True


# @cuda.jit with a signature compiles while the decorators are applied, before numba_kernel sees what they made.
mend_numpy()


def _named(value: Any) -> str:
    return described(value) if inspect.isfunction(value) else f"a {type(value).__name__}"
