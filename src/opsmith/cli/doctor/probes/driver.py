"""Probe: NVIDIA's driver starts and reports its GPUs. Called through ctypes, as for one launch of a compiled kernel.

Not through torch or cuda-bindings: doctor must test the driver also where one of these is broken.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._screen import size
from ..finding import Finding

NO_DEVICE = 100
_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


def driver() -> Finding:
    try:
        driver = Driver()
    except OSError as error:
        return _without_driver(str(error))
    except DriverError as error:
        if error.code == NO_DEVICE:
            return _without_gpu()
        return Finding("broken", str(error), fix="run nvidia-smi for details; reboot after an update of the driver")
    gpus = driver.gpus()
    if not gpus:
        return _without_gpu()
    listed = ", ".join(f"{gpu.name} ({gpu.arch}, {size(gpu.bytes)})" for gpu in gpus)
    return Finding("ok", f"for CUDA up to {driver.version}: {listed}", "initialised it")


def _without_driver(message: str) -> Finding:
    if Path("/proc/driver/nvidia/version").exists():
        return Finding(
            "missing",
            "the kernel has NVIDIA's driver, but there is no libcuda.so.1: a container without access to the GPU",
            fix="docker run --gpus all (with NVIDIA's container toolkit)",
        )
    if _on_the_bus():
        return Finding("missing", f"an NVIDIA GPU, but no driver: {message}", fix="apt-get install nvidia-driver")
    return Finding("missing", "no libcuda.so.1, and no NVIDIA GPU in this machine", fix="a machine with an NVIDIA GPU")


def _without_gpu() -> Finding:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return Finding("missing", f"no GPU with CUDA_VISIBLE_DEVICES={hidden!r}", fix="unset CUDA_VISIBLE_DEVICES")
    return Finding("missing", "the driver works, but reports no GPU")


def _on_the_bus() -> bool:
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            found = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if found[0] == _NVIDIA and found[1].startswith(_DISPLAY):
            return True
    return False


class DriverError(Exception):
    """A driver call failed; `code` is its CUresult."""

    def __init__(self, function: str, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"{function} failed with error {code}: {message}")


@dataclass(frozen=True)
class Gpu:
    name: str
    arch: str
    bytes: int


class Driver:
    """libcuda, initialised. Raises OSError if there is none, and DriverError if it does not start."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", ctypes.c_uint(0))

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            message = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(message))
            raise DriverError(function, code, (message.value or b"unknown").decode())

    @property
    def version(self) -> str:
        """The newest CUDA version that the driver runs: '13.0'."""
        number = ctypes.c_int()
        self("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def gpus(self) -> list[Gpu]:
        count = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(count))
        return [self._gpu(number) for number in range(count.value)]

    def _gpu(self, number: int) -> Gpu:
        device, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
        self("cuDeviceGet", ctypes.byref(device), number)
        self("cuDeviceGetName", name, len(name), device)
        self("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        capability = []
        for attribute in _COMPUTE_CAPABILITY:
            value = ctypes.c_int()
            self("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            capability.append(str(value.value))
        return Gpu(name.value.decode(errors="replace"), f"sm_{''.join(capability)}", size.value)

    def launch(self, cubin: Path, kernel: str, inputs: list[float]) -> list[float]:
        """`kernel(const float* x, float* y, int n)` on the first GPU, one block; returns y."""
        device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
        self("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        count = len(inputs)
        host = (ctypes.c_float * count)(*inputs)
        size = ctypes.c_size_t(ctypes.sizeof(host))
        x, y, n = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int(count)
        for pointer in (x, y):
            self("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self("cuMemcpyHtoD_v2", x, host, size)
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(argument) for argument in (x, y, n)))
        self("cuLaunchKernel", function, 1, 1, 1, count, 1, 1, 0, None, arguments, None)
        self("cuCtxSynchronize")
        self("cuMemcpyDtoH_v2", host, y, size)
        return list(host)


def gpus() -> list[Gpu]:
    """The GPUs that the driver reports; none without a driver."""
    try:
        return Driver().gpus()
    except (OSError, DriverError):
        return []
