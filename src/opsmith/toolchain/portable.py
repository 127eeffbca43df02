"""Libraries of extensions that packages ship: one key for every machine, whatever its GPUs and its processor.

A library that is built where it is used has its GPUs' architectures and its processor's features in its key. A shipped
one is found without them; what it was built for stands in its provenance and is compared with the machine. Sources
compiled with -march=native are shipped once for each of LEVELS.

Its key does not hold the contents of opsmith's own headers either, so that users with another opsmith find it. On
torch's stable ABI it depends on opsmith through INTERFACE and CONVENTION alone, which the key holds.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .cache import cache_key, find_prebuilt
from .compile import abi_settings, contents, file_stem, without_include_flags
from .find import torch_cuda_version
from .nvrtc import FEATURES
from .objects import Recipe, link_flags, without_libraries
from .settings import architectures

LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "fma", "bmi2"},
}
"""Processor levels and the features that tell them; others run code for BASELINE."""
BASELINE = "x86-64"
_NATIVE = "-march=native"
INTERFACE = "opsmith/host.h"
"""Of opsmith's headers, the one with the structures that a library and opsmith's Python exchange."""
CONVENTION = 1
"""Increased with what a library must have besides: the names of exported functions and the message of a declined call
(MARK and DECLINED in kernels/native.py)."""


def find_library(recipe: Recipe) -> Path | None:
    """The library of a recipe that a package ships and this machine can run."""
    if recipe.abi != "stable":
        return None
    for level in _own_levels() if _NATIVE in recipe.cflags else [None]:
        name = library_name(recipe)
        found = find_prebuilt(library_key(recipe, level), label=recipe.label, filenames=[name])
        if found is not None and _runs_here(found.provenance["targets"], found.provenance["cuda"]):
            return found.path(name)
    return None


def library_name(recipe: Recipe) -> str:
    return f"{file_stem(recipe.name)}.so"


def levels_of(recipe: Recipe) -> Sequence[str | None]:
    """The processor levels that a recipe is built for; None for code that runs on any."""
    return [*LEVELS, BASELINE] if _NATIVE in recipe.cflags and platform.machine() == "x86_64" else [None]


def for_level(recipe: Recipe, level: str | None) -> Recipe:
    """The recipe with code for a processor level in place of this machine's."""
    flags = [flag for flag in recipe.cflags if flag != _NATIVE]
    return replace(recipe, cflags=(*flags, f"-march={level}") if level else tuple(flags))


def library_key(recipe: Recipe, level: str | None) -> str:
    own, directories = without_include_flags(without_libraries(for_level(recipe, level).cflags), ())
    parts = contents(recipe.sources, {}, directories, recipe.label)
    for place in recipe.system_dirs:
        parts[f"<opsmith>/{INTERFACE}"] = (place / INTERFACE).read_bytes()
    linked = link_flags(replace(recipe, targets=()))
    return cache_key(
        kind="shipped-library",
        sources=parts,
        flags=[
            library_name(recipe),
            *own,
            "--",
            *recipe.cuda_cflags,
            "--",
            *linked,
            f"debug={recipe.debug}",
            f"convention={CONVENTION}",
        ],
        arch=platform.machine(),
        abi=f"{abi_settings(recipe.abi).level}{' cuda' if recipe.targets else ''}",
    )


@functools.cache
def _own_levels() -> Sequence[str | None]:
    if platform.machine() != "x86_64":
        return [None]
    flags = re.search(r"^flags\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    features = set(flags[1].split()) if flags else set()
    return [*(level for level, needed in LEVELS.items() if needed <= features), BASELINE]


def _runs_here(targets: Sequence[str], cuda: int | None) -> bool:
    """Whether code for these GPUs, compiled by that major version of CUDA, runs on every GPU of this machine."""
    own = torch_cuda_version()
    if cuda is not None and own is not None and int(own.split(".")[0]) != cuda:
        return False
    return not cuda or all(any(_runs(target, gpu) for target in targets) for gpu in architectures())


def _runs(target: str, gpu: str) -> bool:
    kind, _, number = target.partition("_")
    mine, built_for = int(re.sub(r"\D", "", gpu)), number.rstrip(FEATURES)
    if not built_for.isdecimal() or built_for != number:
        return built_for == str(mine)
    return int(number) <= mine and (kind == "compute" or int(number) // 10 == mine // 10)
