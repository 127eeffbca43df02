"""Where generated kernels run: how each device compiles, loads and launches them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..launch.driver import driver
from ..toolchain import compile_cubin, compile_shared_library, load_library
from . import emit_cpp, emit_cuda, tuning
from .expression import Program
from .launch import Job, words_array
from .layout import Variant

INCLUDE_DIRECTORY = Path(__file__).parents[1] / "include"


class Cpu:
    """g++ or clang, on torch's own thread pool."""

    vectorises = False

    def uses(self, tensors: Sequence[torch.Tensor], *, more: bool = False) -> None:
        pass

    def target(self, index: int) -> str:
        return "cpu"

    def vector_width(self, itemsizes: Sequence[int]) -> int:
        return 1

    def segment_chunks(self, length: int, kept: int, vector: int, index: int) -> tuple[int, int]:
        return emit_cpp.segment_chunks(length, kept)

    def column_chunks(self, columns: int, kept: int, rows: int, vector: int, index: int) -> tuple[int, int, int]:
        return emit_cpp.column_chunks(columns, kept, rows)

    def compile(self, program: Program, variant: Variant) -> ctypes.c_void_p:
        """The address of the compiled function."""
        return _cpu_function(emit_cpp.text(program, variant), emit_cpp.entry_name(program))

    def launch(
        self, kernel: ctypes.c_void_p, program: Program, variant: Variant, words: Sequence[int], tasks: Any, index: int
    ) -> None:
        if variant.path == "stream":
            count, grain = tasks, emit_cpp.GRAIN
        else:
            kept, chunks, tiles, elements = tasks
            count = kept * chunks * tiles
            grain = max(1, emit_cpp.GRAIN * count // elements)
        self._parallel(kernel, count, grain, words)

    def combine(self, dtype: torch.dtype, jobs: Sequence[Job], index: int) -> None:
        for job in jobs:
            self._parallel(_cpu_combine(dtype), job[3], emit_cpp.GRAIN, job)

    def _parallel(self, function: ctypes.c_void_p, count: int, grain: int, words: Sequence[int]) -> None:
        if _parallel_for()(0, count, grain, function, words_array(words)) != 0:
            raise RuntimeError("torch_parallel_for failed; torch's words are on stderr")


def _cpu_function(text: str, entry: str) -> ctypes.c_void_p:
    path = compile_shared_library(
        "pointwise",
        text=text,
        abi=emit_cpp.abi(),
        extra_cflags=emit_cpp.flags(),
        include_dirs=[INCLUDE_DIRECTORY],
        label=entry,
    )
    return ctypes.cast(getattr(load_library(path), entry), ctypes.c_void_p)


@functools.cache
def _cpu_combine(dtype: torch.dtype) -> ctypes.c_void_p:
    return _cpu_function(emit_cpp.combine_text(dtype), emit_cpp.COMBINE)


@functools.cache
def _parallel_for() -> Any:
    function = load_library(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so").torch_parallel_for
    function.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function


class Cuda:
    """NVRTC and the driver, on torch's current stream."""

    vectorises = True

    def uses(self, tensors: Sequence[torch.Tensor], *, more: bool = False) -> None:
        pass

    def target(self, index: int) -> str:
        return architecture(index)

    def vector_width(self, itemsizes: Sequence[int]) -> int:
        return tuning.vector_width(itemsizes)

    def segment_chunks(self, length: int, kept: int, vector: int, index: int) -> tuple[int, int]:
        return tuning.segment_chunks(length, kept, vector, multiprocessors(index))

    def column_chunks(self, columns: int, kept: int, rows: int, vector: int, index: int) -> tuple[int, int, int]:
        return tuning.column_chunks(columns, kept, rows, vector, multiprocessors(index))

    def compile(self, program: Program, variant: Variant) -> int:
        """The handle of the compiled kernel, good for every device of this architecture."""
        index = torch.cuda.current_device()
        return _cuda_kernel(
            emit_cuda.text(program, variant), emit_cuda.entry_name(program, variant), architecture(index)
        )

    def launch(
        self, kernel: int, program: Program, variant: Variant, words: Sequence[int], tasks: Any, index: int
    ) -> None:
        grid, block = tuning.geometry(program, variant, words, multiprocessors(index))
        _launch(kernel, grid, block, words, index)

    def combine(self, dtype: torch.dtype, jobs: Sequence[Job], index: int) -> None:
        kernel = _cuda_kernel(emit_cuda.combine_text(dtype, len(jobs)), emit_cuda.COMBINE, architecture(index))
        grid, block = tuning.combine_geometry(max(job[2] for job in jobs), max(job[3] for job in jobs), len(jobs))
        _launch(kernel, grid, block, [word for job in jobs for word in job], index)


@functools.cache
def architecture(index: int) -> str:
    return driver().architecture(index)


@functools.cache
def multiprocessors(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


def compile_cuda(text: str, entry: str, arch: str) -> Path:
    """The cubin of a generated text; needs no GPU."""
    return compile_cubin(
        text,
        arch=arch,
        options=emit_cuda.options(text),
        include_dirs=[INCLUDE_DIRECTORY],
        name=f"{entry}.cu",
        label=entry,
    )


@functools.cache
def _cuda_kernel(text: str, entry: str, arch: str) -> int:
    cubin = compile_cuda(text, entry, arch).read_bytes()
    cuda = driver()
    with cuda.on(torch.cuda.current_device()):
        kernel = cuda.kernel(cuda.load(cubin), entry)
        cuda.make_resident(kernel)
    return kernel


def _launch(kernel: int, grid: tuple[int, ...], block: tuple[int, ...], words: Sequence[int], index: int) -> None:
    array = words_array(words)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(array))
    cuda = driver()
    stream = cuda.current_stream(index)
    configuration = cuda.configuration(grid, block, 0, stream, overlapped=cuda.overlaps(index))
    code = cuda.launch(kernel, ctypes.addressof(configuration), ctypes.addressof(parameters), index)
    cuda.check(code, "cuLaunchKernelEx")


DEVICES: dict[str, Cpu | Cuda] = {"cpu": Cpu(), "cuda": Cuda()}
