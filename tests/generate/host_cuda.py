"""Runs generated CUDA kernels on the CPU, under cuda_on_host.h, on words made here from the words' specification."""

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

import opsmith
from opsmith.generate import emit_cuda, layout, tuning
from opsmith.generate.expression import Program
from opsmith.generate.layout import Variant
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
    count = re.search(r"const Words<(\d+)> words", text)
    threads = re.search(r"__launch_bounds__\((\d+)", text)
    assert count is not None and threads is not None
    source = f"""#include <cuda_on_host.h>
{text}
extern "C" __attribute__((visibility("default"))) void launch(const long long* given, const long long* grid) {{
  opsmith::Words<{count[1]}> words;
  for (int i = 0; i < {count[1]}; ++i) words.word[i] = given[i];
  on_host::launch(grid, {threads[1]}, [=] {{ opsmith::{entry}(words); }});
}}
"""
    return library(source, entry).launch


def launch(text: str, entry: str, words: Sequence[int], grid: Sequence[int]) -> None:
    count = re.search(r"const Words<(\d+)> words", text)
    assert count is not None and int(count[1]) == len(words)
    _launcher(text, entry)((ctypes.c_int64 * len(words))(*words), (ctypes.c_int64 * 3)(*grid))


def bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def mode(steps: Sequence[int]) -> str:
    if not any(steps):
        return "scalar"
    return f"strided{steps[0] if steps[0] in (0, 1) else 'n'}"


def mode_of(walk: layout.Walk, steps: Sequence[int]) -> str:
    return "linear" if layout.mode_of(walk, tuple(steps)) == "linear" else mode(steps)


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
    order = tuple(range(len(shape) - 1, -1, -1))
    expanded = [layout.expanded(tuple(t.shape), t.stride(), shape) for t in (*reads, *results)]
    walk = layout.merged(shape, order, expanded)
    count = math.prod(shape)
    reduced = [i for i, result in enumerate(results) if result.numel() != count]
    values = [bits(value) if isinstance(value, float) else int(value) for value in scalars]
    if not reduced:
        modes = [mode_of(walk, steps) for steps in walk.strides]
        strided = [steps for own, steps in zip(modes, walk.strides, strict=True) if own.startswith("strided")]
        words = [tensor.data_ptr() for tensor in (*reads, *results)] + values + [count]
        if strided:
            words += [*told(walk.sizes, wide), *(step for steps in strided for step in steps)]
        variant = Variant("stream", tuple(modes), 0, len(walk.sizes) if strided else 0, vector, wide)
        _launch(program, variant, words, small)
        return results
    steps_of = walk.strides[len(reads) :]
    grouping = layout.group(walk, [steps_of[i] for i in reduced])
    roles = dict(zip(reduced, grouping.roles, strict=True))
    has_index = not by_strides and not any(grouping.kept)
    own_modes = [mode_of(walk, steps) if has_index else mode(steps) for steps in walk.strides]
    modes = own_modes[: len(reads)]
    for i, own in enumerate(own_modes[len(reads) :]):
        modes.append("absent" if i in absent else f"reduced:{roles[i]}" if i in roles else own)
    kept = [d for d in grouping.kept if d != 0]
    inner = [d for d in range(len(walk.sizes)) if d not in grouping.kept]
    kept_count = math.prod(walk.sizes[d] for d in kept)
    length = math.prod(walk.sizes[d] for d in inner)
    tiles, columns = 1, 1
    if grouping.path == "segment":
        chunks, extent = emit_cuda.segment_chunks(length, kept_count, vector, MULTIPROCESSORS)
        numbers = [length, kept_count, chunks, extent]
    else:
        columns = walk.sizes[0]
        chunks, extent, tiles = emit_cuda.column_chunks(columns, kept_count, length, vector, MULTIPROCESSORS)
        numbers = [columns, kept_count, length, chunks, extent]
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
    words = [*pointers, *values, *numbers, *told([walk.sizes[d] for d in (*kept, *inner)], wide)]
    for own, steps in zip(modes, walk.strides, strict=True):
        if own.startswith("strided"):
            words += [steps[0]] if grouping.path == "column" else []
            words += [*(steps[d] for d in kept), *(steps[d] for d in inner)]
    _launch(program, Variant(grouping.path, tuple(modes), len(kept), len(inner), vector, wide), words)
    for i, partial in partials.items():
        combine(partial, results[i])
    return results


def told(sizes: Sequence[int], wide: bool) -> list[int]:
    return [size if wide else layout.size_word(size) for size in sizes]


def _launch(program: Program, variant: Variant, words: Sequence[int], small: tuple[int, int, int] = (0, 0, 0)) -> None:
    grid, block = emit_cuda.geometry(program, variant, words, MULTIPROCESSORS, small)
    assert block == (tuning.THREADS[variant.path], 1, 1)
    launch(emit_cuda.text(program, variant), emit_cuda.entry_name(program, variant), words, grid)


def combine(partial: torch.Tensor, result: torch.Tensor) -> None:
    rows, columns = partial.shape
    text = emit_cuda.combine_text(result.dtype)
    grid, _ = emit_cuda.combine_geometry(rows, columns)
    launch(text, emit_cuda.COMBINE, (partial.data_ptr(), result.data_ptr(), rows, columns), grid)
