"""The settings of a build: GPU_TARGETS, DEBUG, USE_CUDA, MAX_JOBS and ``arch``."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Sequence

from ..errors import BuildSettingError

ON, OFF = ("1", "on", "true", "yes"), ("0", "off", "false", "no")
TARGETS = "GPU_TARGETS"
# nvcc's own names: every architecture it knows, or the first of each generation.
ALL = ("all", "all-major")
_NATIVE = "native"
_TARGETS_TAKEN = (
    "GPU architectures are written sm_90, 90 or 9.0, several with commas, semicolons or spaces between; +PTX adds code "
    "for later ones. 'native' means the GPUs of this machine, 'all-major' one architecture of each generation"
)
_TARGET = re.compile(r"(sm_|compute_)?(?:(\d{2,3})|(\d{1,2})\.(\d))([a-z]?)(\+PTX)?", re.IGNORECASE)


def switch(variable: str) -> bool | None:
    """Whether an environment variable is on or off; None where it is not set."""
    value = os.environ.get(variable, "").strip().lower()
    if value in ON:
        return True
    if value in OFF:
        return False
    if value:
        raise BuildSettingError(variable, os.environ[variable], "set it to 1 or 0, or unset it")
    return None


LINE_INFO = "OPSMITH_LINE_INFO"


def line_info() -> list[str]:
    """NVRTC's and nvcc's flag for line numbers in kernels, if OPSMITH_LINE_INFO is on: tools such as compute-sanitizer
    and Nsight Compute then print the source line. The kernel's code stays the same."""
    return ["-lineinfo"] if switch(LINE_INFO) else []


def max_jobs() -> int:
    """How many compilers may run at once: MAX_JOBS, else one per processor that this process may use."""
    value = os.environ.get("MAX_JOBS", "").strip()
    if not value:
        return len(os.sched_getaffinity(0))
    if not value.isdecimal() or int(value) < 1:
        raise BuildSettingError("MAX_JOBS", value, "set the number of compilers that may run at once, 1 or more")
    return int(value)


def gpu_targets(arch: str | Sequence[str] | None) -> tuple[str, ...]:
    """The targets of CUDA sources: ("sm_80", "sm_90", "compute_90"), or one of ALL.

    From ``arch``, else GPU_TARGETS, else the GPUs of this machine, else all-major: a machine without a GPU builds for
    others.
    """
    if arch is not None:
        return _parsed("arch", [arch] if isinstance(arch, str) else arch)
    if named := os.environ.get(TARGETS, "").strip():
        return _parsed(TARGETS, [named])
    return architectures() or ("all-major",)


def gencode(targets: Sequence[str]) -> list[str]:
    """nvcc's flags for these targets."""
    if targets[0] in ALL:
        return [f"-arch={targets[0]}"]
    numbers = ((target, target.partition("_")[2]) for target in targets)
    return [f"-gencode=arch=compute_{number},code={target}" for target, number in numbers]


def architectures() -> tuple[str, ...]:
    """("sm_90",): the architectures of this machine's GPUs; empty where there is no driver.

    NVIDIA's management library reports them without initialising CUDA, so the process may still fork. Where the library
    is missing, torch does if CUDA runs in this process anyway.
    """
    return tuple(sorted(_from_management_library() or _from_torch()))


def _from_torch() -> set[str]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return set()
    found = map(torch.cuda.get_device_capability, range(torch.cuda.device_count()))
    return {f"sm_{major}{minor}" for major, minor in found}


def _from_management_library() -> set[str]:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return set()
    except (OSError, AttributeError):
        return set()
    found = set()
    count, device, major, minor = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))  # which stays 0 if that fails
    for index in range(count.value):
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            continue
        if library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) == 0:
            found.add(f"sm_{major.value}{minor.value}")
    library.nvmlShutdown()
    return found


def _parsed(setting: str, given: Sequence[str]) -> tuple[str, ...]:
    names = [name for text in given for name in re.split(r"[\s,;]+", str(text)) if name]
    if len(names) == 1 and names[0].lower() in ALL:
        return (names[0].lower(),)
    targets = dict.fromkeys(target for name in names for target in _targets(setting, given, name))
    if not targets:
        raise BuildSettingError(setting, _shown(given), _TARGETS_TAKEN)
    # PTX last: nvcc accepts any order, but the order is part of the cache's key.
    return tuple(sorted(targets, key=lambda target: (target.startswith("compute_"), len(target), target)))


def _targets(setting: str, given: Sequence[str], name: str) -> Iterator[str]:
    if name.lower() == _NATIVE:
        found = architectures()
        if not found:
            raise BuildSettingError(setting, _shown(given), "'native' means the GPUs of this machine, and it has none")
        yield from found
        return
    parts = _TARGET.fullmatch(name)
    if parts is None:
        raise BuildSettingError(setting, _shown(given), _TARGETS_TAKEN)
    kind, digits, major, minor, suffix, ptx = parts.groups()
    number = (digits or f"{major}{minor}") + suffix.lower()
    virtual = (kind or "").lower() == "compute_"
    if not virtual:
        yield f"sm_{number}"
    if virtual or ptx:
        yield f"compute_{number}"


def _shown(given: Sequence[str]) -> object:
    return given[0] if len(given) == 1 else list(given)
