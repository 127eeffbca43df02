"""Where the kernels of an op come from on this machine: prebuilt, compiled here, or not compiled yet."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import OpsmithError
from ..generate import emit_cpp
from ..kernels.extension import Extension, ExtensionFunction
from ..operator.op import Op
from ..toolchain import Recipe, build_library
from ..toolchain.cache import NotBuilt, looking_up, prebuilt_directories
from ..toolchain.portable import find_library
from ..toolchain.settings import architectures
from .recording import record_op


def origins(op: Op) -> dict[str, Counter[str]]:
    """{"cpu": {"prebuilt": 18, "compiled here": 2}}: of the kernels that the op's samples reach on this processor and
    this machine's GPUs, and of its extensions."""
    found: dict[str, Counter[str]] = {}
    for device, build in _builds(op):
        found.setdefault(device, Counter())[_origin(build)] += 1
    return found


def extensions_of(op: Op) -> dict[tuple[str, str], Extension]:
    """By name and device."""
    functions = ((given.device, given.function) for given in op._families.registered.values())
    return {
        (function.extension.name, device): function.extension
        for device, function in functions
        if isinstance(function, ExtensionFunction)
    }


def _builds(op: Op) -> Iterator[tuple[str, Callable[[], Path]]]:
    for wanted in record_op(op, architectures(), [emit_cpp.capability()]).wanted:
        yield "cpu" if wanted.place in emit_cpp.CAPABILITIES else "cuda", wanted.build
    for (_, device), extension in extensions_of(op).items():
        yield device, functools.partial(_library, extension.recipe())


def _library(recipe: Recipe) -> Path:
    return find_library(recipe) or build_library(recipe)


def _origin(build: Callable[[], Path]) -> str:
    try:
        with looking_up():
            path = build()
    except (NotBuilt, OpsmithError):  # the tools that a key depends on may be missing
        return "not compiled yet"
    return "prebuilt" if any(path.is_relative_to(each) for each in prebuilt_directories) else "compiled here"
