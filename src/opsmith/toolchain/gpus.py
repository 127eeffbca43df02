"""Which GPUs this machine has, by NVIDIA's management library. CUDA stays uninitialised: the process may fork."""

from __future__ import annotations

import ctypes
import sys


def architectures() -> tuple[str, ...]:
    """("sm_90",): one entry an architecture; none where there is no driver."""
    return _of_the_library() or _of_torch()


def _of_torch() -> tuple[str, ...]:
    """What torch tells, where that library is missing and CUDA runs in this process anyway."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ()
    found = (torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))
    return tuple(sorted({f"sm_{major}{minor}" for major, minor in found}))


def _of_the_library() -> tuple[str, ...]:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return ()
    except (OSError, AttributeError):
        return ()
    try:
        return tuple(sorted(_capabilities(library)))
    finally:
        library.nvmlShutdown()


def _capabilities(library: ctypes.CDLL) -> set[str]:
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return set()
    found = set()
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            continue
        if library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) == 0:
            found.add(f"sm_{major.value}{minor.value}")
    return found
