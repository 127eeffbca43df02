"""Generated CUDA kernels on CPU tensors: a device whose kernels the emulator runs."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..kernels.emulation import state
from ..launch.planner import Combine, LayoutClass, Pass, Target
from . import emit_cuda
from .expression import Program
from .tuning import COMBINE_THREADS, planner_tuning

if TYPE_CHECKING:
    from ..emulator.library import Library

TARGET = Target(True, 2, planner_tuning()._replace(very_few=32, few=128, some=512))
"""A small GPU, for its blocks run on the cores of this machine."""

NAMESPACE = "opsmith"  # of the generated source
_JOB = 4  # parameters per result to combine: two addresses, rows, columns


class Emulated:
    """The emulator, on the tensors that a call has said it uses."""

    _target = TARGET.row()

    def __init__(self) -> None:
        self._local = threading.local()

    def architecture(self, index: int) -> str:
        return f"emulated{', checked' if state.settings.checks else ''}"

    def target(self, index: int) -> Any:
        return self._target

    def uses(self, tensors: Sequence[torch.Tensor], *, more: bool = False) -> None:
        self._local.tensors = [*(self._local.tensors if more else ()), *tensors]

    def compile(self, program: Program, layout: LayoutClass) -> tuple[Library, str]:
        entry = emit_cuda.entry_name(program, layout)
        return _library(emit_cuda.text(program, layout), entry, state.settings.checks), entry

    def launch(self, kernel: tuple[Library, str], launch: Pass, blocks: int, pointers: int, index: int) -> None:
        library, entry = kernel
        parameters = (ctypes.c_int64 * launch.parameter_count).from_address(launch.parameters)
        geometry = (blocks, 1, 1), (launch.threads, 1, 1), 0
        self._emulate(library, entry, geometry, parameters, range(pointers))

    def combine(self, dtype: torch.dtype, combine: Combine, index: int) -> None:
        library = _library(emit_cuda.combine_text(dtype, combine.jobs), emit_cuda.COMBINE, state.settings.checks)
        parameters = (ctypes.c_int64 * (_JOB * combine.jobs)).from_address(combine.parameters)
        geometry = (combine.blocks, combine.jobs, 1), (COMBINE_THREADS, 1, 1), 0
        pointers = [position for position in range(len(parameters)) if position % _JOB < 2]
        self._emulate(library, emit_cuda.COMBINE, geometry, parameters, pointers)

    def _emulate(self, library: Library, entry: str, geometry: Any, parameters: Any, pointers: Sequence[int]) -> None:
        from ..emulator.launching import launch
        from ..emulator.memory import piece

        copied = (ctypes.c_int64 * len(parameters))(*parameters)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(copied))

        def relocate(moved: Callable[[int], int]) -> None:
            for position in pointers:
                copied[position] = moved(copied[position])

        pieces = [piece(f"tensor {number}", tensor) for number, tensor in enumerate(self._local.tensors)]
        place = library.entry(f"{NAMESPACE}::{entry}")
        launch(entry, library, place, geometry, ctypes.addressof(arguments), pieces, relocate, state.settings)


@functools.cache
def _library(text: str, entry: str, checks: bool) -> Library:
    from ..emulator.source_library import Source, compile_library

    return compile_library(Source(text, entry, f"{entry}.cu"), [f"{NAMESPACE}::{entry}"], checks)
