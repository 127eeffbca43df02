"""Generated CUDA kernels on CPU tensors: a device whose kernels the emulator runs."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..kernels.emulation import state
from ..launch.planner import Combine, LayoutClass, Pass, Target
from . import emit_cuda
from .expression import Program
from .launch import Device
from .tuning import COMBINE_THREADS, planner_tuning

if TYPE_CHECKING:
    from ..emulator.library import Library

TARGET = Target(True, 2, planner_tuning()._replace(very_few=32, few=128, some=512))
"""A small GPU, because its blocks run on the cores of this machine."""

NAMESPACE = "opsmith"  # of the generated source
_JOB = 4  # parameters per result to combine: two addresses, rows, columns


class Kernel(NamedTuple):
    library: Library
    entry: str
    pointers: int  # the number of launch parameters, from the first, that are addresses


class Emulated(Device):
    _target = TARGET.row()

    def architecture(self, index: int) -> str:
        return f"emulated{', checked' if state.settings.checks else ''}"

    def target(self, index: int) -> Any:
        return self._target

    def compile(self, program: Program, layout: LayoutClass) -> Kernel:
        entry = emit_cuda.entry_name(program, layout)
        library = _library(emit_cuda.text(program, layout), entry, state.settings.checks)
        return Kernel(library, entry, len(program.reads) + len(program.results))

    def launch(self, kernel: Kernel, launch: Pass, blocks: int, memory: Sequence[torch.Tensor], index: int) -> None:
        parameters = (ctypes.c_int64 * launch.parameter_count).from_address(launch.parameters)
        geometry = (blocks, 1, 1), (launch.threads, 1, 1), 0
        _emulate(kernel.library, kernel.entry, geometry, parameters, range(kernel.pointers), memory)

    def combine(self, dtype: torch.dtype, combine: Combine, memory: Sequence[torch.Tensor], index: int) -> None:
        library = _library(emit_cuda.combine_text(dtype, combine.jobs), emit_cuda.COMBINE, state.settings.checks)
        parameters = (ctypes.c_int64 * (_JOB * combine.jobs)).from_address(combine.parameters)
        geometry = (combine.blocks, combine.jobs, 1), (COMBINE_THREADS, 1, 1), 0
        pointers = [position for position in range(len(parameters)) if position % _JOB < 2]
        _emulate(library, emit_cuda.COMBINE, geometry, parameters, pointers, memory)


def _emulate(
    library: Library,
    entry: str,
    geometry: Any,
    parameters: Any,
    pointers: Sequence[int],
    memory: Sequence[torch.Tensor],
) -> None:
    from ..emulator.launching import launch
    from ..emulator.memory import piece

    copied = (ctypes.c_int64 * len(parameters))(*parameters)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(copied))

    def relocate(moved: Callable[[int], int]) -> None:
        for position in pointers:
            copied[position] = moved(copied[position])

    pieces = [piece(f"tensor {number}", tensor) for number, tensor in enumerate(memory)]
    place = library.entry(f"{NAMESPACE}::{entry}")
    launch(entry, library, place, geometry, ctypes.addressof(arguments), pieces, relocate, state.settings)


@functools.cache
def _library(text: str, entry: str, checks: bool) -> Library:
    from ..emulator.source_library import Source, compile_library

    return compile_library(Source(text, entry, f"{entry}.cu"), [f"{NAMESPACE}::{entry}"], checks)


EMULATED = Emulated()
