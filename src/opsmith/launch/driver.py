"""The CUDA driver through ctypes: load a cubin, find its kernels and variables, launch. Every Python launch uses it.

`driver()` is the process's one Driver. TorchSide is what torch knows and the driver does not: the current stream, the
current device, whether a graph is being captured. Tests replace both with `substituted`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..errors import CudaDriverError, NoGpuError

INVALID_CONTEXT = 201
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
MOST_BLOCKS = 2**31 - 1  # along x

# CUfunction_attribute
MAX_THREADS_PER_BLOCK, SHARED_BYTES, CONSTANT_BYTES, LOCAL_BYTES, REGISTERS = range(5)
MAX_DYNAMIC_SHARED_BYTES = 8
CLUSTER_WIDTH, CLUSTER_HEIGHT, CLUSTER_DEPTH = range(11, 14)  # those of __cluster_dims__, or 0
LARGE_CLUSTER_ALLOWED = 14
# CUdevice_attribute
MAX_SHARED_BYTES_OPT_IN = 97

_handle, _number, _unsigned, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_FUNCTIONS: dict[str, Sequence[Any]] = {
    "cuGetErrorString": (_number, _handle),
    "cuDriverGetVersion": (_handle,),
    "cuDeviceGet": (_handle, _number),
    "cuDeviceGetAttribute": (_handle, _number, _number),
    "cuDevicePrimaryCtxRetain": (_handle, _number),
    "cuCtxGetCurrent": (_handle,),
    "cuCtxSetCurrent": (_handle,),
    "cuThreadExchangeStreamCaptureMode": (_handle,),
    "cuLibraryLoadData": (_handle, _handle, _handle, _handle, _unsigned, _handle, _handle, _unsigned),
    "cuLibraryGetKernel": (_handle, _handle, ctypes.c_char_p),
    "cuLibraryGetGlobal": (_handle, _handle, _handle, ctypes.c_char_p),
    "cuKernelGetFunction": (_handle, _handle),
    "cuKernelGetAttribute": (_handle, _number, _handle, _number),
    "cuKernelSetAttribute": (_number, _number, _handle, _number),
    "cuLaunchKernelEx": (_handle, _handle, _handle, _handle),
    "cuStreamCreate": (_handle, _unsigned),
    "cuStreamSynchronize": (_handle,),
    "cuStreamDestroy_v2": (_handle,),
    "cuMemcpyHtoDAsync_v2": (_handle, _handle, _size, _handle),
    "cuMemcpyDtoDAsync_v2": (_handle, _handle, _size, _handle),
}


def largest_cluster(arch: str) -> int:
    """The most blocks of a cluster on an architecture ("sm_90", "compute_120"); 1 where there are no clusters.

    A kernel with more than 8 needs the attribute LARGE_CLUSTER_ALLOWED."""
    major = int("".join(filter(str.isdigit, arch))[:-1])
    return 1 if major < 9 else 16 if major in (9, 10) else 8


class Configuration(ctypes.Structure):
    """CUlaunchConfig: the shape of a launch and its stream."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("_padding", ctypes.c_int), ("value", ctypes.c_int * 16))


OVERLAPPED = Attribute(6, 0, (1,))
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: such a launch may begin before what precedes it has ended, so
its kernel must wait (cuda.h's await_launch_before). OPSMITH_OVERLAP=0 turns it off."""
CLUSTER = 4
"""CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, in blocks."""
OVERLAPPED_IN_GRAPHS = 12030
"""The first driver version that can capture such launches."""


class TorchSide:
    """What torch knows of its GPUs."""

    def available(self) -> bool:
        return torch.cuda.is_available()

    def device_count(self) -> int:
        return torch.cuda.device_count()

    def current_device(self) -> int:
        return torch.cuda.current_device()

    def current_stream(self, index: int) -> int:
        return int(torch._C._cuda_getCurrentRawStream(index))

    def capturing(self) -> bool:
        """Whether this thread's current stream is being captured into a CUDA graph."""
        return torch.cuda.is_current_stream_capturing()

    def capability(self, index: int) -> tuple[int, int]:
        return torch.cuda.get_device_capability(index)

    def written(self, index: int) -> Callable[[], object]:
        """A function that waits for all that is queued so far on this thread's current stream of a device."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(index))
        return event.synchronize

    def on(self, index: int) -> contextlib.AbstractContextManager[Any]:
        """Inside, that device is this thread's current one."""
        return torch.cuda.device(index)


class Driver:
    """libcuda, its functions typed. Handles are plain integers."""

    def __init__(self, path: str = "libcuda.so.1", torch_side: TorchSide | None = None) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise NoGpuError(
                "The CUDA driver cannot be loaded", str(error), "Install NVIDIA's driver, then run `opsmith doctor`."
            ) from error
        for name, arguments in _FUNCTIONS.items():
            getattr(self._library, name).argtypes = arguments
        self.torch = torch_side or TorchSide()
        self._overlaps: dict[int, bool] = {}
        self.launch_kernel = self._library.cuLaunchKernelEx  # (configuration, kernel, parameters, None) -> error code
        # Bound once: every launch calls both.
        self.current_stream: Callable[[int], int] = self.torch.current_stream
        self.current_device: Callable[[], int] = self.torch.current_device
        if torch_side is None and hasattr(torch._C, "_cuda_getCurrentRawStream"):
            self.current_stream, self.current_device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice

    @functools.cached_property
    def several_devices(self) -> bool:
        return self.torch.device_count() > 1

    def architecture(self, index: int) -> str:
        """'sm_90': the architecture that code for a device is compiled for."""
        major, minor = self.torch.capability(index)
        return f"sm_{major}{minor}"

    @functools.cached_property
    def version(self) -> int:
        """12030 for CUDA 12.3."""
        return self._number("cuDriverGetVersion")

    def overlaps(self, index: int) -> bool:
        """Whether launches on a device can be OVERLAPPED."""
        if index not in self._overlaps:
            able = self.torch.capability(index) >= (9, 0) and self.version >= OVERLAPPED_IN_GRAPHS
            self._overlaps[index] = able and os.environ.get("OPSMITH_OVERLAP") != "0"
        return self._overlaps[index]

    def error_text(self, code: int) -> str:
        """The driver's text for an error code."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode(errors="replace")

    def check(self, code: int, what: str) -> None:
        if code != 0:
            raise CudaDriverError(what, code, self.error_text(code))

    # --- contexts ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def on(self, index: int) -> Iterator[None]:
        """Inside, the device's context is this thread's current one, and code can be loaded and memory allocated during
        a capture: neither becomes part of the graph."""
        with self.torch.on(index):
            if not self._handle("cuCtxGetCurrent"):
                self.enter_context(index)
            mode = ctypes.c_int(RELAXED)
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            try:
                yield
            finally:
                self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def enter_context(self, index: int) -> None:
        """Makes the device's primary context, which torch's is, current on this thread."""
        device = self._number("cuDeviceGet", index)
        self._call("cuCtxSetCurrent", self._handle("cuDevicePrimaryCtxRetain", device))

    # --- code -------------------------------------------------------------------------------------------------

    def load(self, cubin: bytes) -> int:
        """The handle of a library of kernels. Inside `on`, it can be loaded while a graph is captured."""
        return self._handle("cuLibraryLoadData", cubin, None, None, 0, None, None, 0)

    def kernel(self, library: int, name: str) -> int:
        """The handle of a kernel by its symbol, valid on every device that can run the library."""
        return self._handle("cuLibraryGetKernel", library, name.encode())

    def make_resident(self, kernel: int) -> None:
        """Loads a kernel into the current context now, since the launch would do so, perhaps while a graph is captured.
        Errors are left to the launch, which meets them too."""
        function = ctypes.c_void_p()
        self._library.cuKernelGetFunction(ctypes.byref(function), kernel)

    def variable(self, library: int, name: str) -> tuple[int, int]:
        """(address, bytes) of a __constant__ or __device__ variable in the current context."""
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("cuLibraryGetGlobal", ctypes.byref(address), ctypes.byref(size), library, name.encode())
        return address.value or 0, size.value

    def attribute(self, kernel: int, attribute: int, index: int) -> int:
        return self._number("cuKernelGetAttribute", attribute, kernel, index)

    def set_attribute(self, kernel: int, attribute: int, value: int, index: int) -> None:
        self._call("cuKernelSetAttribute", attribute, value, kernel, index)

    def device_attribute(self, attribute: int, index: int) -> int:
        return self._number("cuDeviceGetAttribute", attribute, index)

    # --- work -------------------------------------------------------------------------------------------------

    def configuration(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        stream: int,
        *,
        overlapped: bool = False,
        cluster: Sequence[int] | None = None,
    ) -> Configuration:
        """The shape of a launch; `grid`, `block` and `cluster` have three numbers each."""
        if grid[0] > MOST_BLOCKS:  # ctypes would drop the upper bits
            raise ValueError(f"a launch of {grid[0]} blocks is more than a GPU takes")
        given = [OVERLAPPED] if overlapped else []
        if cluster is not None:
            given.append(Attribute(CLUSTER, 0, tuple(cluster)))
        attributes = (Attribute * len(given))(*given)
        address = ctypes.addressof(attributes) if given else None
        made = Configuration(tuple(grid), tuple(block), shared, stream, address, len(given))
        made.kept = attributes  # as long as the configuration, which has only their address
        return made

    def launch(self, kernel: int, configuration: int, parameters: int, index: int) -> int:
        """Launches on a device and returns the error code, 0 for none. `configuration` and `parameters` are addresses:
        of a Configuration, and of an array with the address of each parameter.

        The driver takes the context from the stream; for the default stream it takes the thread's current one.
        """
        if self.several_devices and self.current_device() != index:
            with self.torch.on(index):
                return self._launch(kernel, configuration, parameters, index)
        return self._launch(kernel, configuration, parameters, index)

    def _launch(self, kernel: int, configuration: int, parameters: int, index: int) -> int:
        code: int = self.launch_kernel(configuration, kernel, parameters, None)
        if code == INVALID_CONTEXT:  # a thread that has not used this GPU yet, as autograd's own
            self.enter_context(index)
            code = self.launch_kernel(configuration, kernel, parameters, None)
        return code

    def write(self, address: int, source: bytes | int, size: int, stream: int) -> None:
        """Copies host bytes, or device memory at an address, to device memory, in the order of a stream."""
        if isinstance(source, int):
            self._call("cuMemcpyDtoDAsync_v2", address, source, size, stream)
        else:
            # From pageable memory: the driver copies the bytes before it returns, without waiting for the stream.
            self._call("cuMemcpyHtoDAsync_v2", address, source, size, stream)

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[int]:
        """A new stream, independent of torch's and of any capture. Its work is finished on a normal exit."""
        stream = self._handle("cuStreamCreate", NON_BLOCKING)
        try:
            yield stream
            self._call("cuStreamSynchronize", stream)
        finally:
            self._library.cuStreamDestroy_v2(stream)

    def _call(self, name: str, *arguments: Any) -> None:
        self.check(getattr(self._library, name)(*arguments), name)

    def _handle(self, name: str, *arguments: Any) -> int:
        """The handle that a function writes to its first argument; 0 for none."""
        found = ctypes.c_void_p()
        self._call(name, ctypes.byref(found), *arguments)
        return found.value or 0

    def _number(self, name: str, *arguments: Any) -> int:
        """The number that a function writes to its first argument."""
        found = ctypes.c_int()
        self._call(name, ctypes.byref(found), *arguments)
        return found.value


_lock = threading.Lock()
_driver: Driver | None = None


def driver() -> Driver:
    """The process's driver, loaded at the first call. Raises NoGpuError if there is none."""
    global _driver
    if _driver is None:
        with _lock:
            if _driver is None:
                _driver = Driver()
    return _driver


def available() -> bool:
    """Whether torch can use a GPU here."""
    return (TorchSide() if _driver is None else _driver.torch).available()


@contextlib.contextmanager
def substituted(other: Driver) -> Iterator[Driver]:
    """Inside, `driver()` is another one: how launches are tested where there is no GPU."""
    global _driver
    before, _driver = _driver, other
    try:
        yield other
    finally:
        _driver = before
