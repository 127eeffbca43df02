"""Runs generated CUDA kernels on the CPU, under cuda_on_host.h, with launch parameters built here."""

from __future__ import annotations

import ctypes
import functools
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from launch import pieces

import opsmith
from opsmith.generate import emit_cuda, tuning
from opsmith.generate.expression import Program
from opsmith.launch.planner import LayoutClass
from opsmith.toolchain import compile_shared_library, load_library

HERE = Path(__file__).parent
INCLUDE = Path(opsmith.__file__).parent / "include"
MULTIPROCESSORS = 2  # a small GPU, so that a small tensor is cut into several chunks

FLAGS = ("-O1", "-ffp-contract=off", "-Wno-unknown-pragmas", "-fno-strict-aliasing")


def library(text: str, label: str) -> Any:
    path = compile_shared_library(
        "on_host", text=text, abi="plain", extra_cflags=FLAGS, include_dirs=[INCLUDE, HERE], label=label
    )
    return load_library(path)


@functools.cache
def _launcher(text: str, entry: str) -> Any:
    count = re.search(r"const Parameters<(\d+)> parameters", text)
    threads = re.search(r"__launch_bounds__\((\d+)", text)
    assert count is not None and threads is not None
    source = f"""#include <cuda_on_host.h>
{text}
extern "C" __attribute__((visibility("default"))) void launch(const long long* given, const long long* grid) {{
  opsmith::Parameters<{count[1]}> parameters;
  for (int i = 0; i < {count[1]}; ++i) parameters.value[i] = given[i];
  on_host::launch(grid, {threads[1]}, [=] {{ opsmith::{entry}(parameters); }});
}}
"""
    return library(source, entry).launch


def launch(text: str, entry: str, parameters: Sequence[int], grid: Sequence[int]) -> None:
    count = re.search(r"const Parameters<(\d+)> parameters", text)
    assert count is not None and int(count[1]) == len(parameters)
    _launcher(text, entry)((ctypes.c_int64 * len(parameters))(*parameters), (ctypes.c_int64 * 3)(*grid))


def bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def run(
    program: Program,
    reads: Sequence[torch.Tensor],
    scalars: Sequence[float | int | bool] = (),
    *,
    shape: tuple[int, ...],
    sizes: Sequence[tuple[int, ...]],
    vector: int,
    wide: bool = False,
    absent: Sequence[int] = (),
    small: tuple[int, int, int] = (0, 0, 0),
    by_strides: bool = False,
) -> list[torch.Tensor]:
    """The results of a program, of these sizes. The last dimension is the innermost one. `small`: elements up to which
    each, or each pack, has a thread of its own; `by_strides`: reductions reach what is dense as they do the rest."""
    results = [torch.full(size, -77.0).to(result.dtype) for size, result in zip(sizes, program.results, strict=True)]
    loops = pieces.loops(shape, [tensor.expand(shape).stride() for tensor in (*reads, *results)])
    count = math.prod(shape)
    reduced = [i for i, result in enumerate(results) if result.numel() != count]
    values = [bits(value) if isinstance(value, float) else int(value) for value in scalars]
    if not reduced:
        strided = [steps for own, steps in zip(loops.modes, loops.strides, strict=True) if own.startswith("strided")]
        parameters = [tensor.data_ptr() for tensor in (*reads, *results)] + values + [count]
        if strided:
            parameters += [*encoded(loops.sizes, wide), *(step for steps in strided for step in steps)]
        layout = LayoutClass("stream", loops.modes, 0, len(loops.sizes) if strided else 0, vector, wide)
        blocks = pieces.stream_blocks(pieces.gpu(MULTIPROCESSORS, small), count, tuning.tiles(program, layout))
        _launch(program, layout, parameters, blocks)
        return results
    steps_of = loops.strides[len(reads) :]
    grouping = pieces.group([steps_of[i] for i in reduced])
    roles = dict(zip(reduced, grouping.roles, strict=True))
    has_index = not by_strides and not any(grouping.kept)
    own_modes = loops.modes if has_index else tuple(map(pieces.strided_mode, loops.strides))
    modes = [*own_modes[: len(reads)]]
    for i, own in enumerate(own_modes[len(reads) :]):
        modes.append("absent" if i in absent else f"reduced:{roles[i]}" if i in roles else own)
    kept = [d for d in grouping.kept if d != 0]
    inner = [d for d in range(len(loops.sizes)) if d not in grouping.kept]
    kept_count = math.prod(loops.sizes[d] for d in kept)
    length = math.prod(loops.sizes[d] for d in inner)
    by_column = grouping.path == "column"
    columns = loops.sizes[0] if by_column else 1
    chunks, extent, tiles, blocks = pieces.chunks(
        pieces.gpu(MULTIPROCESSORS), by_column, columns, kept_count, length, vector
    )
    numbers = [columns, kept_count, length] if by_column else [length, kept_count]
    shapes = {
        "all": (chunks, kept_count * columns),
        "inner": (chunks * kept_count, columns),
        "outer": (chunks * tiles, kept_count),
        "none": (chunks * tiles * kept_count, 1),
    }
    summed = {i: shapes[role] for i, role in roles.items() if role is not None and i not in absent}
    several = {results[i].dtype for i, (rows, _) in summed.items() if rows > 1}
    partials = {}
    for i, shape_of_sums in summed.items():
        if results[i].dtype in several:  # the pass writes the others itself
            dtype = torch.float64 if results[i].dtype is torch.float64 else torch.float32
            partials[i] = torch.full(shape_of_sums, math.nan, dtype=dtype)
    pointers = [tensor.data_ptr() for tensor in reads]
    for i, result in enumerate(results):
        pointers.append(0 if i in absent else partials.get(i, result).data_ptr())
    parameters = [*pointers, *values, *numbers, chunks, extent]
    parameters += encoded([loops.sizes[d] for d in (*kept, *inner)], wide)
    for own, steps in zip(modes, loops.strides, strict=True):
        if own.startswith("strided"):
            parameters += [steps[0]] if by_column else []
            parameters += [*(steps[d] for d in kept), *(steps[d] for d in inner)]
    layout = LayoutClass(grouping.path, tuple(modes), len(kept), len(inner), vector, wide)
    _launch(program, layout, parameters, blocks)
    for i, partial in partials.items():
        combine(partial, results[i])
    return results


def encoded(sizes: Sequence[int], wide: bool) -> list[int]:
    return [size if wide else pieces.with_multiplier(size) for size in sizes]


def _launch(program: Program, layout: LayoutClass, parameters: Sequence[int], blocks: int) -> None:
    text = emit_cuda.text(program, layout)
    assert f"__launch_bounds__({tuning.THREADS[layout.path]}," in text
    launch(text, emit_cuda.entry_name(program, layout), parameters, (blocks, 1, 1))


def combine(partial: torch.Tensor, result: torch.Tensor) -> None:
    rows, columns = partial.shape
    text = emit_cuda.combine_text(result.dtype)
    addresses = partial.data_ptr(), result.data_ptr()
    launch(text, emit_cuda.COMBINE, (*addresses, rows, columns), (-(-columns // 32), 1, 1))
