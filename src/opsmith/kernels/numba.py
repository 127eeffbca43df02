"""Numba CUDA kernels on torch tensors: zero-copy, on torch's current stream, on the tensors' device.

Numba's own launch `kernel[grid, block](x, out)` uses Numba's default stream and does not wait for the work that torch
has queued on another: a silent race. `numba_kernel` launches on torch's stream.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

from ..errors import (
    DeviceMixError,
    EmulationError,
    KernelArgumentError,
    KernelFault,
    KernelValueError,
    LaunchConfigurationError,
    NumbaDeviceFunctionError,
    NumbaKernelTypeError,
    NumbaLaunchError,
    NumbaStreamError,
    OpsmithError,
    SourceLine,
    described,
)
from . import emulation
from .configuration import Extent, LaunchConfiguration, launch_configuration
from .substitution import reached, substituted

DTYPES = frozenset({
    torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
})  # fmt: skip
"""What Numba can read: not bfloat16."""

REMEMBERED = 1024  # launch configurations of a kernel that are ready


def numba_kernel(kernel: Any) -> NumbaKernel:
    """A kernel made by @numba.cuda.jit, launched on torch tensors.

    >>> @opsmith.numba_kernel
    ... @numba.cuda.jit
    ... def add(x, out, n): ...
    >>> add[grid, block](x, out, n)

    `add[grid, block]` or `add[grid, block, shared]` with bytes of dynamic shared memory; grid and block are a number or
    up to three. Tensors are passed without a copy, with their strides. The launch is queued on torch's current stream
    of their device and not waited for. An empty grid launches nothing. Inside `opsmith.emulate` the kernel runs on CPU
    tensors, in Numba's simulator.
    """
    return NumbaKernel(kernel)


class NumbaKernel:
    """What `numba_kernel` returns."""

    def __init__(self, kernel: Any) -> None:
        function = getattr(kernel, "py_func", None)
        if isinstance(kernel, NumbaKernel) or not callable(function) or not hasattr(kernel, "__getitem__"):
            given = described(kernel) if inspect.isfunction(kernel) else f"a {type(kernel).__name__}"
            raise NumbaKernelTypeError("numba_kernel", given=given)
        if getattr(kernel, "targetoptions", {}).get("device") or getattr(kernel, "_device", False):
            raise NumbaDeviceFunctionError("numba_kernel", given=described(function), function=function)
        supply_row_stack()
        self.kernel = kernel
        self.label = f"the Numba kernel {described(function)}"
        self.__name__ = function.__name__
        self.py_func: Callable[..., Any] = function
        self.signature = inspect.signature(function)
        self._configured = functools.lru_cache(REMEMBERED)(self._configure)
        functools.update_wrapper(self, function)

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"<{self}>"

    def __call__(self, *args: Any) -> None:
        raise LaunchConfigurationError(
            self.label, f"a launch needs a grid and a block: {self.__name__}[grid, block](...)"
        )

    def __getitem__(self, key: Any) -> Callable[..., None]:
        return functools.partial(self._launch, launch_configuration(self.label, key, smallest_grid=0, clusters=False))

    # --- launching --------------------------------------------------------------------------------------------------

    def _launch(self, configuration: LaunchConfiguration, *args: Any) -> None:
        try:
            bound = self.signature.bind(*args)
        except TypeError as error:
            raise KernelArgumentError(self.label, str(error), self._declared()) from None
        tensors = {name: value for name, value in bound.arguments.items() if isinstance(value, torch.Tensor)}
        for name, tensor in tensors.items():
            self._check(name, tensor)
        devices = {tensor.device for tensor in tensors.values()}
        if len(devices) > 1:
            raise DeviceMixError(self.label, {name: str(tensor.device) for name, tensor in tensors.items()})
        device = next(iter(devices), None if emulation.state.active else torch.device("cuda"))
        if 0 in configuration.grid:
            return
        if device is not None and device.type == "cuda":
            self._launch_on(device, configuration, args)
        elif emulation.state.active:
            _simulate(self, configuration, args)
        else:
            name = next(iter(tensors))
            raise KernelValueError(
                self.label, f"{name} is on the {tensors[name].device.type}, and the kernel runs on a GPU: {name} = "
                f"{name}.cuda(), or run on the CPU inside `with opsmith.emulate():`", self._declared()
            )  # fmt: skip

    def _declared(self) -> str:
        code = self.py_func.__code__
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}: def {self.__name__}{self.signature}"

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.dtype not in DTYPES:
            raise KernelArgumentError(
                self.label, f"Numba cannot read {tensor.dtype}, the dtype of {name}; pass {name}.float(), or return "
                "NotImplemented so that the reference runs", self._declared()
            )  # fmt: skip
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            kind = "a lazily negated or conjugated" if tensor.layout is torch.strided else f"a {tensor.layout}"
            advice = f"{name}.clone()" if tensor.layout is torch.strided else f"{name}.to_dense()"
            raise KernelValueError(self.label, f"{name} is {kind} tensor; pass {advice}", self._declared())

    def _launch_on(self, device: torch.device, configuration: LaunchConfiguration, args: Sequence[Any]) -> None:
        from numba import cuda

        index = torch.cuda.current_device() if device.index is None else device.index
        try:
            with cuda.gpus[index]:
                # Zero-copy. `sync` concerns arrays that name a stream; torch's tensors name none.
                arrays = [
                    cuda.as_cuda_array(each.detach(), sync=False) if isinstance(each, torch.Tensor) else each
                    for each in args
                ]
                stream = _stream(cuda, index, torch.cuda.current_stream(index).cuda_stream)
                self._configured(configuration.grid, configuration.block, stream, configuration.shared)(*arrays)
        except OpsmithError:
            raise
        except Exception as error:
            raise NumbaLaunchError(self.label, str(configuration), f"{type(error).__name__}: {error}") from error

    def _configure(self, *key: Any) -> Any:
        """Numba's own launch. Its warning about a small grid is ignored: the size of a tensor decides the grid."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Grid size")
            return self.kernel[key]


@functools.cache
def _stream(cuda: Any, index: int, pointer: int) -> Any:
    """Torch's stream as Numba's: the same object for the same stream, by which Numba finds a launch it has prepared."""
    return cuda.external_stream(pointer) if pointer else 0


# --- on the CPU: Numba's own simulator, for kernels that were made to be compiled -----------------------------------
#
# NUMBA_ENABLE_CUDASIM=1 makes @cuda.jit itself return a simulated function, and must be set before numba is imported.
# Here the Python function of a compiled kernel runs in a copy, in which `cuda` is the simulator's and device functions
# are the Python functions that they were made of. Each thread of a block is a Python thread.

_SIMULATED_THREAD = re.compile(r"tid=\[(\d+), (\d+), (\d+)\] ctaid=\[.*?\](?:: )?")


def _simulate(kernel: NumbaKernel, configuration: LaunchConfiguration, args: Sequence[Any]) -> None:
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray
    from numba.cuda.simulator.kernel import BlockManager

    def array(tensor: torch.Tensor) -> Any:
        """The tensor's own memory, as a kernel sees an array."""
        return FakeWithinKernelCUDAArray(FakeCUDAArray(tensor.detach().numpy()))

    arrays = [array(each) if isinstance(each, torch.Tensor) else each for each in args]
    for block in emulation.state.settings.order(configuration.grid):
        # A copy for each block: shared memory is not carried from one to the next.
        function = _simulated(kernel.py_func, configuration)
        try:
            BlockManager(function, configuration.grid, configuration.block, False).run(block, *arrays)
        except IndexError as error:
            raise _out_of_bounds(kernel, block, error) from error
        except Exception as error:
            line = SourceLine.of_error(error)
            raise EmulationError(kernel.label, f"{type(error).__name__}: {error}", line) from error


def _simulated(function: Any, configuration: LaunchConfiguration) -> Any:
    from numba import cuda
    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    module = FakeCUDAModule(configuration.grid, configuration.block, configuration.shared)

    def wanted(value: Any) -> bool:
        return value is cuda or isinstance(getattr(value, "py_func", None), FunctionType)

    def replacement(value: Any) -> Any:
        return module if value is cuda else substituted(value.py_func, wanted, replacement)

    return substituted(function, wanted, replacement)


def _out_of_bounds(kernel: NumbaKernel, block: Extent, error: IndexError) -> KernelFault:
    found = _SIMULATED_THREAD.match(str(error))
    thread = (int(found[1]), int(found[2]), int(found[3])) if found else None
    what = _SIMULATED_THREAD.sub("", str(error)) or "an index is out of bounds"
    line = SourceLine.of_error(error)
    notes = ["A GPU would read or overwrite whatever is there. Guard the access: if i < x.size"]
    return KernelFault(
        kernel.label, "out of bounds", what, line and line.file, line and line.number, block, thread, notes
    )


# --- for register_kernel ---------------------------------------------------------------------------------------------


def used_by(function: Any) -> bool:
    """Whether a function launches a Numba kernel. Imports nothing."""
    return bool(reached(function, lambda value: isinstance(value, NumbaKernel)))


def refuse_bare_launches(name: str, function: Any) -> None:
    """Raises RegistrationError for a function that launches a Numba kernel on Numba's own stream."""
    from numba.cuda.dispatcher import CUDADispatcher

    for kernel in reached(function, lambda value: isinstance(value, CUDADispatcher)):
        if not kernel.targetoptions.get("device"):
            raise NumbaStreamError(
                name,
                launcher=described(function),
                kernel=described(kernel.py_func),
                called=kernel.py_func.__name__,
                function=function,
            )


# --- NumPy 2.5 ------------------------------------------------------------------------------------------------------

_supplying = threading.Lock()


def supply_row_stack() -> bool:
    """Lets Numba compile for CUDA under NumPy 2.5, and returns whether that was needed.

    numba-cuda 0.30 looks up np.row_stack, which NumPy 2.5 has removed, while it loads its array functions before the
    first compilation. So that name exists, as np.vstack, during that import alone."""
    if "numba.cuda" not in sys.modules:
        return False
    import numpy

    if hasattr(numpy, "row_stack"):
        return False
    with _supplying:
        if "numba.cuda.np.arrayobj" not in sys.modules:
            numpy.row_stack = numpy.vstack
            try:
                import numba.cuda.np.arrayobj  # noqa: F401
            finally:
                del numpy.row_stack
    return True


# @cuda.jit with a signature compiles while the decorators are applied, before numba_kernel is called.
supply_row_stack()
