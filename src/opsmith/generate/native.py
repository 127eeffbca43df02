"""What the C++ launcher (runtime/native/pointwise.h) is told of a generated kernel once it has run.

From then on calls of the same kind reach the kernel without Python. On the Python tier there is nobody to tell.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from ..launch.driver import driver
from ..runtime import native
from ..runtime.autocast import scalar_type
from ..runtime.operator import Operator
from . import devices, emit_cpp, emit_cuda, tuning
from .compiler import Compiler
from .launch import Prepared
from .layout import Variant

PATHS = ("stream", "segment", "column")
MODES = (
    "linear", "scalar", "strided0", "strided1", "stridedn", "reduced:all", "reduced:inner", "reduced:outer",
    "reduced:none", "absent",
)  # fmt: skip
"""As walk.h and generated.h number them."""

_SLOTS = {"cpu": 0, "cuda": 1}


def tell(
    operator: Operator, role: str, device: str, index: int, compiler: Compiler, prepared: Prepared, inputs: int
) -> None:
    """Called when `prepared` has served a call of the operator; `inputs` counts the call's tensors but for out=."""
    attachment = operator.attachment
    if not isinstance(attachment, native.Attachment):
        return
    _tell_tuning(attachment)
    if device == "cuda":
        _tell_gpu(attachment, index)
    kernels = dict(_kernels(device, index, prepared))
    for variant in kernels:
        if variant.path != "stream":
            _tell_combines(attachment, device, index, prepared, variant)
    attachment.tell_generated(
        device,
        prepared,
        lambda: _numbers(role, compiler, prepared, inputs),
        [
            (layout_bytes(variant, index), address, _tiles(device, prepared, variant))
            for variant, address in kernels.items()
        ],
    )


def _tiles(device: str, prepared: Prepared, variant: Variant) -> tuple[int, int, int, int]:
    on_gpu = device == "cuda" and variant.path == "stream"
    return tuning.tiles(prepared.program, variant) if on_gpu else (1, 1, 1, 1)


def layout_bytes(variant: Variant, index: int) -> bytes:
    """generated.h's Layout."""
    head = (PATHS.index(variant.path), variant.outer, variant.inner, variant.vector, variant.wide, index)
    return bytes([*head, *(MODES.index(mode) for mode in variant.modes)])


def _numbers(role: str, compiler: Compiler, prepared: Prepared, inputs: int) -> list[int]:
    """The row that runtime.cpp's read_prepared reads."""
    level, program = prepared.level, prepared.program
    results = len(compiler.result_names)
    first_argument = {"backward": results, "second": 1 + results}.get(role, 0)
    outs: list[int] = []
    if role == "out":
        outs = list(range(inputs, inputs + results))
    elif role == "inplace":
        outs = [slot for slot, argument in enumerate(compiler.signature.tensors) if argument.mutated]
    return [
        *_counted((read.slot, read.dtype.itemsize) for read in program.reads),
        *_counted(
            (_number(dtype), -1 if like is None else like)
            for dtype, like in zip(level.dtypes, level.likes, strict=True)
        ),
        *_counted((first_argument + scalar.position, int(scalar.dtype is torch.float64)) for scalar in program.scalars),
        *_counted((len(group), *sorted(group)) for group in level.shaped_by),
        inputs,
        *_counted((slot,) for slot in outs),
        int(role in ("backward", "second")),
    ]


def _counted(entries: Any) -> list[int]:
    listed = list(entries)
    return [len(listed), *(number for entry in listed for number in entry)]


_number = functools.cache(scalar_type)


def _kernels(device: str, index: int, prepared: Prepared) -> Iterator[tuple[Variant, int]]:
    """The kernels compiled for a device, as addresses."""
    target = devices.DEVICES[device].target(index)
    for (compiled_for, variant), kernel in list(prepared.kernels.items()):
        if compiled_for == target:
            yield variant, kernel.value or 0 if isinstance(kernel, ctypes.c_void_p) else int(kernel)


def _tell_combines(
    attachment: native.Attachment, device: str, index: int, prepared: Prepared, variant: Variant
) -> None:
    modes = variant.modes[len(prepared.program.reads) :]
    summed = Counter(
        result.dtype
        for result, mode in zip(prepared.program.results, modes, strict=True)
        if mode.startswith("reduced:")
    )
    for dtype, results in summed.items():
        _tell_combine(attachment, device, index, dtype, 1 if device == "cpu" else results)


_told: set[Any] = set()


def _tell_once(attachment: native.Attachment, what: str, *arguments: Any) -> None:
    if (what, arguments) not in _told:
        attachment.tell_shared(what, *arguments)
        _told.add((what, arguments))


def _tell_combine(attachment: native.Attachment, device: str, index: int, dtype: torch.dtype, results: int) -> None:
    if device == "cpu":
        address = devices._cpu_combine(dtype).value
    else:
        text = emit_cuda.combine_text(dtype, results)
        address = devices._cuda_kernel(text, emit_cuda.COMBINE, devices.architecture(index))
    _tell_once(attachment, "combine", _SLOTS[device], index, _number(dtype), results, address)


def _tell_gpu(attachment: native.Attachment, index: int) -> None:
    _tell_once(attachment, "gpu", index, devices.multiprocessors(index), driver().overlaps(index))


def _tell_tuning(attachment: native.Attachment) -> None:
    if "tuning" not in _told:
        attachment.tell_shared("tuning", native.row(tuning_numbers()))
        _told.add("tuning")


def tuning_numbers() -> tuple[int, ...]:
    """tuning.h's CpuTuning, then its CudaTuning."""
    return (
        emit_cpp.GRAIN, emit_cpp.TASKS, emit_cpp.TILE,
        tuning.THREADS["stream"], tuning.THREADS["segment"], tuning.THREADS["column"], tuning.COMBINE_THREADS,
        tuning.RESIDENT, tuning.TILE_PACKS, tuning.NARROWEST, tuning.LEAST_PACKS, tuning.MOST_PACKS, tuning.FEW_ITEMS,
        *tuning.SMALL,
    )  # fmt: skip
