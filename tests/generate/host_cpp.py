"""Runs kernels of emit_cpp.py by hand: launch parameters built here, entry points called in ranges of tasks."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from launch import pieces

import opsmith
from opsmith.generate import emit_cpp
from opsmith.generate.expression import Interner, Program, Result, program
from opsmith.generate.functions import Function
from opsmith.generate.text import computed_in
from opsmith.launch.planner import LayoutClass
from opsmith.toolchain import compile_shared_library

INCLUDE = Path(opsmith.__file__).parent / "include"


def functions(names: Sequence[str], dtypes: Sequence[torch.dtype], result: torch.dtype) -> tuple[Program, LayoutClass]:
    """A kernel of many functions, a result each: compiled together they take seconds, each alone minutes."""
    interner = Interner()
    inputs = [interner.input(slot, computed_in(dtype)) for slot, dtype in enumerate(dtypes)]
    results = [Result(f"{name}_of", interner.call(Function(name), inputs, result), result) for name in names]
    kinds = "_".join(str(dtype)[6:] for dtype in (*dtypes, result))
    layout = LayoutClass("stream", ("linear",) * (len(dtypes) + len(names)), 0, 0, 1, True)
    return program(f"{names[0]}_{kinds}", results, list("xyz"), list(dtypes), None), layout


def build(texts: Iterable[str]) -> ctypes.CDLL:
    """A library of kernels whose vectors have the same number of lanes."""
    return ctypes.CDLL(
        str(
            compile_shared_library(
                "test_emit_cpp",
                text="\n".join(texts),
                abi=emit_cpp.abi(),
                extra_cflags=emit_cpp.flags(),
                include_dirs=[INCLUDE],
            )
        )
    )


class Kernels:
    """Kernels compiled together: one library for each number of lanes."""

    def __init__(self, kernels: Iterable[tuple[Program, LayoutClass]] = (), launches: Iterable[Launch] = ()) -> None:
        texts: dict[str, dict[str, str]] = {}
        entries: dict[str, str] = {}  # by text, so that launches of one layout share a kernel
        self.lanes: dict[str, str] = {}

        def enter(each: Program, layout: LayoutClass) -> None:
            text, entry = emit_cpp.text(each, layout), emit_cpp.entry_name(each)
            self.lanes[entry] = re.search(r"OPSMITH_LANES (\d+)", text)[1]  # type: ignore[index]
            texts.setdefault(self.lanes[entry], {})[entry] = text

        for each, layout in kernels:
            enter(each, layout)
        for launch in launches:
            text = emit_cpp.text(launch.program, launch.layout)
            if text not in entries:
                unique = dataclasses.replace(launch.program, name=f"{launch.program.name}_{len(entries)}")
                entries[text] = emit_cpp.entry_name(unique)
                enter(unique, launch.layout)
            launch.entry = entries[text]
        self.libraries = {lanes: build(each.values()) for lanes, each in texts.items()}

    def call(self, name: str, tasks: int, parameters: Sequence[int], cuts: Sequence[int] = ()) -> None:
        """All tasks, in the ranges that `cuts` gives."""
        array = (ctypes.c_int64 * len(parameters))(*parameters)
        entry = getattr(self.libraries[self.lanes[name]], name)
        entry.argtypes, entry.restype = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p], None
        stops = [0, *sorted(min(cut, tasks) for cut in cuts), tasks]
        for begin, end in reversed(list(itertools.pairwise(stops))):
            if begin < end:
                entry(begin, end, ctypes.addressof(array))

    def elementwise(self, kernel: tuple[Program, LayoutClass], *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The results of a kernel of functions, by their names."""
        outputs = {
            result.name.removesuffix("_of"): torch.empty(inputs[0].shape, dtype=result.dtype)
            for result in kernel[0].results
        }
        parameters = [tensor.data_ptr() for tensor in (*inputs, *outputs.values())] + [inputs[0].numel()]
        self.call(emit_cpp.entry_name(kernel[0]), inputs[0].numel(), parameters)
        return outputs


def encoded(value: float | int | bool) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0]) if isinstance(value, float) else int(value)


@dataclass
class Launch:
    """A program on tensors of one shape: its layout, and its parameters for given chunks.

    `kept` gives for each result the dimensions of `shape` that it keeps, None for one of the full shape, and "absent".
    Dimensions are not merged: a kernel works with loops in any order."""

    program: Program
    shape: tuple[int, ...]
    reads: Sequence[torch.Tensor]
    kept: Sequence[tuple[int, ...] | str | None]
    scalars: Sequence[Any] = ()
    linear: bool = True  # whether contiguous operands of a stream are read by their index
    entry: str = ""

    def __post_init__(self) -> None:
        order = range(len(self.shape) - 1, -1, -1)
        self.sizes = [self.shape[d] for d in order]
        self.outputs = [
            torch.empty(self._result_shape(keep), dtype=result.dtype)
            for keep, result in zip(self.kept, self.program.results, strict=True)
        ]
        operands = [*self.reads, *self.outputs]
        self.strides = [[tensor.expand(self.shape).stride(d) for d in order] for tensor in operands]
        sums = [keep for keep in self.kept if isinstance(keep, tuple)]
        most = max(sums, key=len, default=())
        inner = {len(self.shape) - 1}
        self.path = "column" if inner <= set(most) else "segment" if sums else "stream"
        self.kept_dims = [i for i, d in enumerate(order) if d in most and not (self.path == "column" and i == 0)]
        self.reduced_dims = [i for i, d in enumerate(order) if d not in most] if sums else []
        modes = []
        for number, (tensor, strides) in enumerate(zip(operands, self.strides, strict=True)):
            keep = self.kept[number - len(self.reads)] if number >= len(self.reads) else None
            if isinstance(keep, tuple):
                partly = "inner" if set(keep) == inner else "outer"
                role = "all" if set(keep) == set(most) else partly if keep else "none"
                modes.append(f"reduced:{role}")
            elif keep == "absent":
                modes.append("absent")
            elif all(stride == 0 for stride in strides):
                modes.append("scalar")
            elif self.path == "stream" and self.linear and tensor.shape == self.shape and tensor.is_contiguous():
                modes.append("linear")
            else:
                modes.append(f"strided{strides[0] if strides[0] in (0, 1) else 'n'}")
        strided = any(mode.startswith("strided") for mode in modes)
        if self.path == "stream":
            outer, inner_count = 0, len(self.sizes) if strided else 0
        else:
            outer, inner_count = len(self.kept_dims), len(self.reduced_dims)
        self.layout = LayoutClass(self.path, tuple(modes), outer, inner_count, 1, True)

    def _result_shape(self, keep: tuple[int, ...] | str | None) -> tuple[int, ...]:
        if keep is None or isinstance(keep, str):
            return self.shape
        return tuple(size if d in keep else 1 for d, size in enumerate(self.shape))

    def run(self, kernels: Kernels, cuts: Sequence[int] = (), chunk: int | None = None) -> list[torch.Tensor]:
        """The results. `chunk` overrides the length of a chunk of a reduction."""
        pointers = [tensor.data_ptr() for tensor in self.reads]
        head = [*map(encoded, self.scalars)]
        modes = self.layout.modes[len(self.reads) :]
        if self.path == "stream":
            parameters = [*pointers, *(tensor.data_ptr() for tensor in self.outputs), *head, math.prod(self.shape)]
            if any(mode.startswith("strided") for mode in self.layout.modes):
                parameters += [*self.sizes, *self._stride_parameters(range(len(self.sizes)), [])]
            kernels.call(self.entry, math.prod(self.shape), parameters, cuts)
            return self.outputs
        kept_count = math.prod(self.sizes[d] for d in self.kept_dims)
        length = math.prod(self.sizes[d] for d in self.reduced_dims)
        columns = self.sizes[0] if self.path == "column" else 1
        chunks, per_chunk, tiles, _ = pieces.chunks(pieces.CPU, self.path == "column", columns, kept_count, length)
        if chunk is not None:
            chunks, per_chunk = max(1, -(-length // chunk)), chunk
        numbers = [length, kept_count] if self.path == "segment" else [columns, kept_count, length]
        layouts = {
            "all": (chunks, kept_count * columns), "inner": (chunks * kept_count, columns),
            "outer": (chunks * tiles, kept_count), "none": (chunks * tiles * kept_count, 1),
        }  # fmt: skip
        partials: list[Any] = []
        for output, mode in zip(self.outputs, modes, strict=True):
            role = mode.removeprefix("reduced:")
            dtype = torch.float64 if output.dtype is torch.float64 else torch.float32
            partials.append(torch.full((math.prod(layouts[role]),), math.nan, dtype=dtype) if role in layouts else None)
        pointers += [
            0 if mode == "absent" else (output if partial is None else partial).data_ptr()
            for output, partial, mode in zip(self.outputs, partials, modes, strict=True)
        ]
        parameters = [*pointers, *head, *numbers, chunks, per_chunk]
        parameters += [self.sizes[d] for d in (*self.kept_dims, *self.reduced_dims)]
        parameters += self._stride_parameters(
            (*self.kept_dims, *self.reduced_dims), [0] if self.path == "column" else []
        )
        kernels.call(self.entry, kept_count * chunks * tiles, parameters, cuts)
        for output, partial, mode in zip(self.outputs, partials, modes, strict=True):
            if partial is not None:
                combine(output, partial, *layouts[mode.removeprefix("reduced:")])
        return self.outputs

    def _stride_parameters(self, dimensions: Iterable[int], before: list[int]) -> list[int]:
        chosen = [*before, *dimensions]
        return [
            strides[d]
            for strides, mode in zip(self.strides, self.layout.modes, strict=True)
            if mode.startswith("strided")
            for d in chosen
        ]


_combiners: dict[tuple[str, torch.dtype], Any] = {}


def combine(result: torch.Tensor, partial: torch.Tensor, rows: int, columns: int) -> None:
    key = (emit_cpp.capability(), result.dtype)
    if key not in _combiners:
        _combiners[key] = getattr(build([emit_cpp.combine_text(result.dtype)]), emit_cpp.COMBINE)
        _combiners[key].argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    parameters = (ctypes.c_int64 * 4)(partial.data_ptr(), result.data_ptr(), rows, columns)
    _combiners[key](0, columns // 2, ctypes.addressof(parameters))
    _combiners[key](columns // 2, columns, ctypes.addressof(parameters))
