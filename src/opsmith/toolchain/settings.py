"""The switches of a build: what GPU_TARGETS, DEBUG, USE_CUDA and MAX_JOBS say, and what `arch` means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from ..errors import BuildSettingError
from .gpus import architectures

ON, OFF = ("1", "on", "true", "yes"), ("0", "off", "false", "no")
TARGETS = "GPU_TARGETS"
# What nvcc itself has a word for: every architecture it knows, or the first of each generation.
ALL = ("all", "all-major")
_NATIVE = "native"
_TARGETS_TAKEN = (
    "GPU architectures are written sm_90, 90 or 9.0, several with commas, semicolons or spaces between; +PTX adds code "
    "for later ones. 'native' are the GPUs of this machine, 'all-major' one architecture of each generation"
)
_TARGET = re.compile(r"(sm_|compute_)?(?:(\d{2,3})|(\d{1,2})\.(\d))([a-z]?)(\+PTX)?", re.IGNORECASE)


def switch(variable: str) -> bool | None:
    """Whether the environment switches something on or off; None where it says nothing."""
    value = os.environ.get(variable, "").strip().lower()
    if value in ON:
        return True
    if value in OFF:
        return False
    if value:
        raise BuildSettingError(variable, os.environ[variable], "set 1 or 0, or nothing at all")
    return None


LINE_INFO = "OPSMITH_LINE_INFO"


def line_info() -> list[str]:
    """NVRTC's and nvcc's flag for line numbers in kernels, where OPSMITH_LINE_INFO asks for them: tools such as
    compute-sanitizer and Nsight Compute then name the source line. The kernel's code stays the same."""
    return ["-lineinfo"] if switch(LINE_INFO) else []


def max_jobs() -> int:
    """How many compilers may run at once: MAX_JOBS, else one a processor that this process may use."""
    value = os.environ.get("MAX_JOBS", "").strip()
    if not value:
        return len(os.sched_getaffinity(0))
    if not value.isdecimal() or int(value) < 1:
        raise BuildSettingError("MAX_JOBS", value, "set the number of compilers that may run at once, 1 or more")
    return int(value)


def gpu_targets(arch: str | Sequence[str] | None) -> tuple[str, ...]:
    """What CUDA sources are compiled for: ("sm_80", "sm_90", "compute_90"), or one of ALL.

    From ``arch``, else GPU_TARGETS, else the GPUs of this machine, else all-major: a machine without a GPU builds for
    others.
    """
    if arch is not None:
        return _parsed("arch", [arch] if isinstance(arch, str) else arch)
    if named := os.environ.get(TARGETS, "").strip():
        return _parsed(TARGETS, [named])
    return architectures() or ("all-major",)


def gencode(targets: Sequence[str]) -> list[str]:
    """nvcc's flags for them."""
    if targets[0] in ALL:
        return [f"-arch={targets[0]}"]
    numbers = ((target, target.partition("_")[2]) for target in targets)
    return [f"-gencode=arch=compute_{number},code={target}" for target, number in numbers]


def _parsed(setting: str, given: Sequence[str]) -> tuple[str, ...]:
    words = [word for text in given for word in re.split(r"[\s,;]+", str(text)) if word]
    if len(words) == 1 and words[0].lower() in ALL:
        return (words[0].lower(),)
    targets = dict.fromkeys(target for word in words for target in _targets(setting, given, word))
    if not targets:
        raise BuildSettingError(setting, _shown(given), _TARGETS_TAKEN)
    # PTX last: nvcc takes any order, but the order is part of the cache's key.
    return tuple(sorted(targets, key=lambda target: (target.startswith("compute_"), len(target), target)))


def _targets(setting: str, given: Sequence[str], word: str) -> Iterator[str]:
    if word.lower() == _NATIVE:
        found = architectures()
        if not found:
            raise BuildSettingError(setting, _shown(given), "'native' are the GPUs of this machine, and it has none")
        yield from found
        return
    parts = _TARGET.fullmatch(word)
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
