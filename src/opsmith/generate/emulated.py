"""Generated CUDA kernels on CPU tensors: a device like the others, whose kernels the emulator runs."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..kernels.emulation import state
from . import emit_cuda, tuning
from .devices import Cuda
from .expression import Program
from .launch import Job, words_array
from .layout import Variant

if TYPE_CHECKING:
    from ..emulator.library import Library

MULTIPROCESSORS, SMALL = 2, (32, 128, 512)
"""Of the GPU that is emulated: few, for its blocks run on the cores of this machine."""

NAMESPACE = "opsmith"  # of the generated text
_JOB = 4  # words: two addresses, rows, columns


class Emulated(Cuda):
    """The emulator, on the tensors that a call has said it uses."""

    def __init__(self) -> None:
        self._local = threading.local()

    def target(self, index: int) -> str:
        return f"emulated{', checked' if state.settings.checks else ''}"

    def uses(self, tensors: Sequence[torch.Tensor], *, more: bool = False) -> None:
        self._local.tensors = [*(self._local.tensors if more else ()), *tensors]

    def segment_chunks(self, length: int, kept: int, vector: int, index: int) -> tuple[int, int]:
        return tuning.segment_chunks(length, kept, vector, MULTIPROCESSORS)

    def column_chunks(self, columns: int, kept: int, rows: int, vector: int, index: int) -> tuple[int, int, int]:
        return tuning.column_chunks(columns, kept, rows, vector, MULTIPROCESSORS)

    def compile(self, program: Program, variant: Variant) -> Any:
        entry = emit_cuda.entry_name(program, variant)
        return _library(emit_cuda.text(program, variant), entry, state.settings.checks), entry

    def launch(
        self, kernel: Any, program: Program, variant: Variant, words: Sequence[int], tasks: Any, index: int
    ) -> None:
        grid, block = tuning.geometry(program, variant, words, MULTIPROCESSORS, SMALL)
        pointers = range(len(program.reads) + len(program.results))
        library, entry = kernel
        self._emulate(library, entry, (grid, block), words, pointers)

    def combine(self, dtype: torch.dtype, jobs: Sequence[Job], index: int) -> None:
        library = _library(emit_cuda.combine_text(dtype, len(jobs)), emit_cuda.COMBINE, state.settings.checks)
        geometry = tuning.combine_geometry(max(job[2] for job in jobs), max(job[3] for job in jobs), len(jobs))
        words = [word for job in jobs for word in job]
        pointers = [position for position in range(len(words)) if position % _JOB < 2]
        self._emulate(library, emit_cuda.COMBINE, geometry, words, pointers)

    def _emulate(
        self, library: Library, entry: str, geometry: Any, words: Sequence[int], pointers: Sequence[int]
    ) -> None:
        from ..emulator.launching import launch
        from ..emulator.memory import piece

        array = words_array(words)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(array))

        def relocate(moved: Callable[[int], int]) -> None:
            for position in pointers:
                array[position] = moved(array[position])

        pieces = [piece(f"tensor {number}", tensor) for number, tensor in enumerate(self._local.tensors)]
        (grid, block), address = geometry, ctypes.addressof(arguments)
        place = library.entry(f"{NAMESPACE}::{entry}")
        launch(entry, library, place, (grid, block, 0), address, pieces, relocate, state.settings)


@functools.cache
def _library(text: str, entry: str, checks: bool) -> Library:
    from ..emulator.source_library import Source, compile_library

    return compile_library(Source(text, entry, f"{entry}.cu"), [f"{NAMESPACE}::{entry}"], checks)
