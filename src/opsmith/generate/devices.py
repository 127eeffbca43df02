"""The devices that generated kernels run on: how each compiles, loads and launches them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..kernels.configuration import LaunchConfiguration
from ..kernels.emulation import state
from ..launch.driver import LARGE_CLUSTER_ALLOWED, driver, largest_cluster
from ..launch.planner import Combine, LayoutClass, Pass, Target
from ..toolchain import CudaProgram, compile_shared_library, load_library
from . import emit, emit_cpp, emit_cuda
from .expression import Program
from .launch import Device
from .tuning import COMBINE_THREADS, CPU_GRAIN, planner_tuning

if TYPE_CHECKING:
    from ..emulator.library import Library

INCLUDE_DIRECTORY = Path(__file__).parents[1] / "include"


class Cpu(Device):
    """g++ or clang, on torch's own thread pool."""

    _target = Target(False, 0, planner_tuning()).row()

    def architecture(self, index: int) -> str:
        return "cpu"

    def compile(self, program: Program, layout: LayoutClass) -> int:
        """The address of the compiled function."""
        return _cpu_function(emit.cpp(program, layout), emit_cpp.entry_name(program))

    def launch(self, kernel: int, launch: Pass, blocks: int, memory: Sequence[torch.Tensor], index: int) -> None:
        _parallel(launch.tasks, launch.grain, kernel, launch.parameters)

    def combine(self, dtype: torch.dtype, combine: Combine, memory: Sequence[torch.Tensor], index: int) -> None:
        _parallel(combine.tasks, CPU_GRAIN, cpu_combine(dtype), combine.parameters)


def cpu_build(text: str, entry: str) -> Callable[[], Path]:
    """The build of a generated source as a library, for the processor that sources are written for now."""
    return functools.partial(
        compile_shared_library,
        "pointwise",
        text=text,
        abi=emit_cpp.abi(),
        extra_cflags=emit_cpp.flags(),
        extra_ldflags=emit_cpp.LINKED,
        include_dirs=[INCLUDE_DIRECTORY],
        label=entry,
    )


def _cpu_function(text: str, entry: str) -> int:
    return ctypes.cast(getattr(load_library(cpu_build(text, entry)()), entry), ctypes.c_void_p).value or 0


@functools.cache
def cpu_combine(dtype: torch.dtype) -> int:
    return _cpu_function(emit_cpp.combine_text(dtype), emit_cpp.COMBINE)


def _parallel(tasks: int, grain: int, function: int, parameters: int) -> None:
    if _parallel_for()(0, tasks, grain, function, parameters) != 0:
        raise RuntimeError("torch_parallel_for failed; torch's message is on stderr")


@functools.cache
def _parallel_for() -> Any:
    function = load_library(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so").torch_parallel_for
    function.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function


class Cuda(Device):
    """NVRTC and the driver, on torch's current stream."""

    def architecture(self, index: int) -> str:
        return _architecture(index)

    def target(self, index: int) -> Any:
        return _cuda_target(index)

    def compile(self, program: Program, layout: LayoutClass) -> int:
        """The handle of the compiled kernel, valid for every device of this architecture."""
        text, entry = emit.cuda(program, layout), emit_cuda.entry_name(program, layout)
        return _cuda_kernel(text, entry, _architecture(torch.cuda.current_device()), layout.cluster > 8)

    def launch(self, kernel: int, launch: Pass, blocks: int, memory: Sequence[torch.Tensor], index: int) -> None:
        _launch(kernel, (blocks, 1, 1), (launch.threads, 1, 1), launch.parameters, index)

    def combine(self, dtype: torch.dtype, combine: Combine, memory: Sequence[torch.Tensor], index: int) -> None:
        kernel = cuda_combine(dtype, combine.jobs, index)
        _launch(kernel, (combine.blocks, combine.jobs, 1), (COMBINE_THREADS, 1, 1), combine.parameters, index)


def cuda_combine(dtype: torch.dtype, jobs: int, index: int) -> int:
    return _cuda_kernel(emit_cuda.combine_text(dtype, jobs), emit_cuda.COMBINE, _architecture(index))


@functools.cache
def _architecture(index: int) -> str:
    return driver().architecture(index)


@functools.cache
def multiprocessors(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


@functools.cache
def _cuda_target(index: int) -> Any:
    return Target(True, multiprocessors(index), planner_tuning(), largest_cluster(_architecture(index))).row()


def compile_cuda(text: str, entry: str, arch: str) -> Path:
    """The cubin of a generated source; needs no GPU."""
    program = CudaProgram(
        text,
        arch=arch,
        options=emit_cuda.options(text),
        include_dirs=[INCLUDE_DIRECTORY],
        name=f"{entry}.cu",
        label=entry,
    )
    return program.compile().path


@functools.cache
def _cuda_kernel(text: str, entry: str, arch: str, large_cluster: bool = False) -> int:
    cubin = compile_cuda(text, entry, arch).read_bytes()
    cuda = driver()
    index = torch.cuda.current_device()
    with cuda.on(index):
        kernel = cuda.kernel(cuda.load(cubin), entry)
        if large_cluster:
            cuda.set_attribute(kernel, LARGE_CLUSTER_ALLOWED, 1, index)
        cuda.make_resident(kernel)
    return kernel


def _launch(kernel: int, grid: tuple[int, ...], block: tuple[int, ...], parameters: int, index: int) -> None:
    pointers = (ctypes.c_void_p * 1)(parameters)
    cuda = driver()
    stream = cuda.current_stream(index)
    configuration = cuda.configuration(grid, block, 0, stream, overlapped=cuda.overlaps(index))
    code = cuda.launch(kernel, ctypes.addressof(configuration), ctypes.addressof(pointers), index)
    cuda.check(code, "cuLaunchKernelEx")


# --- CUDA kernels on CPU tensors, run by the emulator -----------------------------------------------------------------

EMULATED_TARGET = Target(
    True,
    2,
    planner_tuning()
    ._replace(very_few=32, few=128, some=512)
    ._replace(row_lane_packs=2, row_bytes=32, row_most_bytes=64, row_most_warps=2, row_few_threads=64),
)
"""A small GPU, because its blocks run on the cores of this machine."""


@functools.cache
def _emulated_target(cluster: int) -> Any:
    return EMULATED_TARGET._replace(cluster=cluster).row()


NAMESPACE = "opsmith"  # of the generated source
_JOB = 4  # parameters per result to combine: two addresses, rows, columns


class _Kernel(NamedTuple):
    library: Library
    entry: str
    pointers: int  # the number of launch parameters, from the first, that are addresses
    cluster: int  # its blocks; 0 or 1 without


_EMULATED_CLUSTER = 4  # as few blocks as show what several do


class Emulated(Device):
    def target(self, index: int) -> Any:
        return _emulated_target(min(largest_cluster(state.settings.gpu.arch), _EMULATED_CLUSTER))

    def architecture(self, index: int) -> str:
        return f"emulated{', checked' if state.settings.checks else ''}"

    def compile(self, program: Program, layout: LayoutClass) -> _Kernel:
        entry = emit_cuda.entry_name(program, layout)
        library = _library(emit.cuda(program, layout), entry, state.settings.checks)
        return _Kernel(library, entry, len(program.reads) + len(program.results), layout.cluster)

    def launch(self, kernel: _Kernel, launch: Pass, blocks: int, memory: Sequence[torch.Tensor], index: int) -> None:
        parameters = (ctypes.c_int64 * launch.parameter_count).from_address(launch.parameters)
        cluster = (kernel.cluster, 1, 1) if kernel.cluster > 1 else None
        configuration = LaunchConfiguration((blocks, 1, 1), (launch.threads, 1, 1), 0, cluster)
        _emulate(kernel.library, kernel.entry, configuration, parameters, range(kernel.pointers), memory)

    def combine(self, dtype: torch.dtype, combine: Combine, memory: Sequence[torch.Tensor], index: int) -> None:
        library = _library(emit_cuda.combine_text(dtype, combine.jobs), emit_cuda.COMBINE, state.settings.checks)
        parameters = (ctypes.c_int64 * (_JOB * combine.jobs)).from_address(combine.parameters)
        configuration = LaunchConfiguration((combine.blocks, combine.jobs, 1), (COMBINE_THREADS, 1, 1), 0)
        pointers = [position for position in range(len(parameters)) if position % _JOB < 2]
        _emulate(library, emit_cuda.COMBINE, configuration, parameters, pointers, memory)


def _emulate(
    library: Library,
    entry: str,
    configuration: LaunchConfiguration,
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
    launch(entry, library, place, configuration, ctypes.addressof(arguments), pieces, relocate, state.settings)


@functools.cache
def _library(text: str, entry: str, checks: bool) -> Library:
    from ..emulator.building import Source, compile_library

    return compile_library(Source(text, entry, f"{entry}.cu"), [f"{NAMESPACE}::{entry}"], checks)


DEVICES: dict[str, Device] = {"cpu": Cpu(), "cuda": Cuda()}
EMULATED = Emulated()
