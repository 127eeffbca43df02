"""The parts of CUDA that the emulator does not run: a source that uses one is refused by name and line.

The headers do not declare these names, so the compiler reports them where they are used. A function of that name that
the author has written is not affected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import CompileError, UnsupportedFeatureError
from ..toolchain.diagnostics import Diagnostic
from . import entries

_UNKNOWN = "names that opsmith's headers do not have"
REFUSED = {
    "textures and surfaces": (
        r"tex(?:1D|2D|3D|Cubemap)\w*|surf(?:1D|2D|3D|Cubemap)\w*|cuda(?:Texture|Surface)Object_t|texture|surface"
    ),
    "copies to several blocks of a cluster": r"__cluster_map_shared_multicast",
    "whether a launch has clusters": r"__clusterDimIsSpecified",
    "named barriers": r"__barrier_sync|__barrier_sync_count",
    "operations of a warp without a mask, which GPUs refuse too": (
        r"__(?:any|all|ballot)|any|all|ballot|__shfl(?:_up|_down|_xor)?"
    ),
    "asynchronous copies": r"__nv_memcpy_async_\w+|__pipeline_\w+",
    "access properties": r"__nv_associate_access_property",
    "the place of parameters": r"__isGridConstant",
    "atomic operations with orders and scopes": r"__nv_atomic_\w+",
    "128-bit floating-point numbers": r"__nv_fp128_\w+",
    "8-bit and 4-bit floats": r"__nv_fp[468]\w*",
    "tensor cores": r"nvcuda|wmma|__[hibd]mma_\w+",
    "the CUDA runtime's functions": r"cuda[A-Z]\w*|__cuda\w+",
    "the CUDA driver's functions": r"cu[A-Z]\w*|CU[a-z]\w*",
    # Such names are the compiler's, not an author's; but those of the half types need an #include.
    _UNKNOWN: r"__(?!\w*(?:half|bfloat16)|h[a-z])\w+",
}
"""Patterns of names by feature; the first match counts."""

_HEADER = re.compile(
    r"(?:cub|thrust|cuda|cute|cutlass|nv|nvtx3|crt|cooperative_groups|cudnn_frontend)/.*"
    r"|(?:cuda|cu[A-Z]|cub|cufft|curand|cusolver|cusparse|cudnn|nccl|nvshmem|nvml|nvrtc|nvtx|sm_\d|texture_|surface_"
    r"|device_|driver_|channel_|mma|math_)\w*(?:\.h|\.hpp|\.cuh)"
)
_MISSING_HEADER = re.compile(r"(?P<header>\S+): No such file or directory")
_UNKNOWN_NAMES = (
    re.compile(r"'(?:[\w:]*::)?(?P<name>\w+)' (?:was not declared|has not been declared|does not name a)"),
    re.compile(r"there are no arguments to '(?P<name>\w+)' that depend on a template parameter"),
)
_UNKNOWN_MEMBER = re.compile(r"'(?P<name>\w+)' is not a member of '(?P<space>(?:cuda|cooperative_groups)(?:::\w+)*)'")
_HEADER_MESSAGE = re.compile(r"opsmith's emulator does not run (?P<feature>[^:\n]*\([^)\n]*\)|[^.:\"\n]+)")
_OF_INLINE_PTX = re.compile(r"(?:constraint|operand)\w* .*'asm'|'asm' operand")
INLINE_PTX = "inline PTX (asm)"
# An asm statement in the compiler's output: the line, the file, the text.
_ASSEMBLED = re.compile(r'^# (?P<line>\d+) "(?P<file>[^"]+)" 1\n(?P<text>.*?)\n# 0 "" 2$', re.DOTALL | re.MULTILINE)


def feature_of(name: str) -> str | None:
    """The feature of a name that the headers do not have: 'textures and surfaces (tex2D)'."""
    for feature, names in REFUSED.items():
        if re.fullmatch(names, name):
            return f"{feature} ({name})"
    return None


def refusal(error: CompileError, label: str) -> UnsupportedFeatureError | None:
    """The error for a source that the compiler rejected because of a feature that is not emulated; None for others."""
    for each in error.errors:
        # In an entry the spelling of a launch is at fault.
        if not isinstance(each, Diagnostic) or each.file == entries.FILE:
            continue
        if (feature := _feature(each.message)) is not None:
            return UnsupportedFeatureError(label, feature, each.line, _other(each.file, label))
    return None


def refuse_assembly(assembly: str, label: str, own_directories: Sequence[Path]) -> None:
    """Raise for inline PTX of the author's in the compiler's output, where that of a header may appear."""
    own = tuple(os.path.join(directory, "") for directory in own_directories)
    for found in _ASSEMBLED.finditer(assembly):
        if found["text"].strip() and found["file"].startswith((*own, "<")):
            raise UnsupportedFeatureError(label, INLINE_PTX, int(found["line"]), _other(found["file"], label))


def _feature(message: str) -> str | None:
    if found := _HEADER_MESSAGE.search(message):
        return found["feature"].strip()
    if _OF_INLINE_PTX.search(message):
        return INLINE_PTX
    if (missing := _MISSING_HEADER.match(message)) and _HEADER.fullmatch(missing["header"]):
        return f"what the header <{missing['header']}> has"
    if found := _UNKNOWN_MEMBER.search(message):
        return f"{_UNKNOWN} ({found['space']}::{found['name']})"
    for pattern in _UNKNOWN_NAMES:
        if found := pattern.search(message):
            return feature_of(found["name"])
    return None


def _other(file: str, label: str) -> str | None:
    """A file's name, if it is not the one that the label names."""
    name = os.path.basename(file)
    return None if name in label else name
