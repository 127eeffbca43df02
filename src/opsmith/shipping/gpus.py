"""The GPUs that kernels are prebuilt for: how a launch is planned depends on these numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ..launch.gpu import Gpu

ALL = ("sm_80", "sm_90", "sm_100", "sm_120", "compute_120")
"""`--arch all`: one cubin for each generation since 2020, and PTX for later ones."""


TABLE = (
    Gpu("A100", "sm_80", 108, 163 << 10),
    Gpu("RTX A6000", "sm_86", 84, 99 << 10),
    Gpu("L4", "sm_89", 58, 99 << 10),
    Gpu("L40S", "sm_89", 142, 99 << 10),
    Gpu("H100", "sm_90", 132, 227 << 10),
    Gpu("B200", "sm_100", 148, 227 << 10),
    Gpu("RTX 5090", "sm_120", 170, 99 << 10),
)


def recorded(targets: Sequence[str]) -> list[Gpu]:
    """The GPUs on which calls are recorded for these targets: those that run a cubin or the PTX of one of them."""
    major = {_major(target) for target in targets}
    found = [gpu for gpu in TABLE if _major(gpu.arch) in major]
    return found or list(TABLE)


def _major(target: str) -> int:
    digits = "".join(filter(str.isdigit, target))
    return int(digits[:-1])
