"""One call of a generated kernel: its walk over the tensors, its results, its words, its launch.

What differs between devices is in devices.py; native/pointwise.h is this file in C++.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ..errors import ToolchainError, ToolMissingError
from . import layout
from .expression import Program
from .layout import LINEAR, SCALAR, Variant, Walk
from .levels import Level

MAX_32_BIT = 2**31 - 1


Job = tuple[int, int, int, int]
"""Partial sums to add up: their address, the result's, rows, columns."""


class Device(Protocol):
    """What compiles and runs kernels on one kind of device."""

    vectorises: bool  # whether the kernels' text depends on how many elements are moved at once

    def uses(self, tensors: Sequence[torch.Tensor], *, more: bool = False) -> None:
        """Told before a launch: all the memory that its words point to."""

    def target(self, index: int) -> str:
        """What kernels for a device are compiled for: devices of one target share them."""

    def vector_width(self, itemsizes: Sequence[int]) -> int: ...

    def segment_chunks(self, length: int, kept: int, vector: int, index: int) -> tuple[int, int]:
        """Chunks, and a word that tells the kernel how they are made."""

    def column_chunks(self, columns: int, kept: int, rows: int, vector: int, index: int) -> tuple[int, int, int]:
        """Chunks, such a word, and the tiles that the columns are cut into."""

    def compile(self, program: Program, variant: Variant) -> Any: ...

    def launch(
        self, kernel: Any, program: Program, variant: Variant, words: Sequence[int], tasks: Any, index: int
    ) -> None: ...

    def combine(self, dtype: torch.dtype, jobs: Sequence[Job], index: int) -> None: ...


@dataclass
class Prepared:
    """A program for tensors of certain kinds, and its kernels compiled so far."""

    level: Level
    program: Program
    kernels: dict[tuple[str, Variant], Any] = field(default_factory=dict)  # by what they are compiled for
    failed: dict[Any, ToolchainError] = field(default_factory=dict)  # the same of those that could not be compiled


@dataclass
class Operand:
    """A tensor as the kernel sees it: expanded to the full shape."""

    address: int
    itemsize: int
    strides: tuple[int, ...]


class NotCompiled(Exception):
    """One kernel could not be compiled. `first`: it was tried just now; later calls do not try again."""

    def __init__(self, error: ToolchainError, first: bool) -> None:
        self.error = error
        self.first = first


class ShapesDiffer(Exception):
    """The results are not all of one shape, which one walk cannot write."""


def full_shape(level: Level, tensors: Sequence[torch.Tensor | None]) -> layout.Sizes:
    """The one shape of all results, before any is summed."""
    shapes = {
        layout.broadcast([tuple(tensors[slot].shape) for slot in group])  # type: ignore[union-attr]
        for group in level.shaped_by
    }
    shape = shapes.pop()
    if shapes or shape is None:
        raise ShapesDiffer
    return shape


def order_for(program: Program, shape: layout.Sizes, tensors: Sequence[torch.Tensor | None]) -> layout.Sizes:
    """The order of dimensions, as TensorIterator finds it for these operands."""
    present = [(tuple(t.shape), t.stride()) for t in tensors if t is not None]
    if len(program.reads) < len(present):  # one that the function does not use may have any shape
        present = [each for each in present if layout.broadcast([shape, each[0]]) == shape]
    return layout.order_of(shape, present)


def result_sizes(level: Level, shape: layout.Sizes, tensors: Sequence[torch.Tensor | None]) -> list[layout.Sizes]:
    return [shape if like is None else tuple(tensors[like].shape) for like in level.likes]  # type: ignore[union-attr]


def run(
    device: Device,
    prepared: Prepared,
    tensors: Sequence[torch.Tensor | None],
    scalars: Sequence[Any],
    index: int,
    outs: Sequence[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """The results of a program on these tensors, all of one device; written into `outs` where given."""
    level, program = prepared.level, prepared.program
    shape = full_shape(level, tensors)
    order = order_for(program, shape, tensors)
    sizes = result_sizes(level, shape, tensors)
    if any(layout.broadcast([shape, size]) != shape for size in sizes):
        raise ShapesDiffer  # the gradient of an input that the function does not use, of some other shape
    where = _place(tensors)
    results = outs if outs is not None else [
        torch.empty_strided(size, layout.dense_strides(size, order, len(shape)), dtype=dtype, device=where)
        for size, dtype in zip(sizes, level.dtypes, strict=True)
    ]  # fmt: skip
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        for result in results:  # The sum of no elements.
            result.zero_()
        return list(results)
    read = [tensors[operand.slot] for operand in program.reads]
    device.uses([*(tensor for tensor in read if tensor is not None), *results])
    operands = [_operand(tensor, shape) for tensor in read if tensor is not None]
    written = [_operand(result, shape) for result in results]
    reduced = [result.numel() != count for result in results]
    walk = layout.merged(shape, order, [operand.strides for operand in (*operands, *written)])
    values = [_word(value, scalar.dtype) for value, scalar in zip(scalars, program.scalars, strict=True)]
    if not any(reduced):
        _stream(device, prepared, walk, operands, written, values, index)
    else:
        _reduce(device, prepared, walk, operands, written, reduced, list(results), values, index)
    return list(results)


def _place(tensors: Sequence[torch.Tensor | None]) -> torch.device:
    return next(tensor.device for tensor in tensors if tensor is not None)


def _operand(tensor: torch.Tensor, shape: layout.Sizes) -> Operand:
    return Operand(
        tensor.data_ptr(), tensor.element_size(), layout.expanded(tuple(tensor.shape), tensor.stride(), shape)
    )


def _word(value: Any, dtype: torch.dtype) -> int:
    if dtype is torch.float64:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return int(value)


def _mode(strides: layout.Sizes) -> str:
    if all(stride == 0 for stride in strides):
        return SCALAR
    return f"strided{strides[0] if strides[0] in (0, 1) else 'n'}"


def _mode_of(walk: Walk, strides: layout.Sizes) -> str:
    """The same, where an operand may also be addressed by the element's own index."""
    return LINEAR if layout.mode_of(walk, strides) == LINEAR else _mode(strides)


def _vector(device: Device, walk: Walk, operands: Sequence[Operand], modes: Sequence[str], inner: int) -> int:
    """Elements that can be moved at once: what is contiguous along `inner` elements must be aligned in every row."""
    moved = [
        (operand, steps) for operand, steps, mode in zip(operands, walk.strides, modes, strict=True)
        if mode in (LINEAR, "strided1")
    ]  # fmt: skip
    width = device.vector_width([operand.itemsize for operand, _ in moved]) if moved else 1
    if inner % width:
        return 1
    for operand, steps in moved:
        block = min(16, width * operand.itemsize)
        if operand.address % block or any(step % width for step in steps[1:]):
            return 1
    return width


def _told(sizes: Sequence[int], wide: bool) -> Sequence[int]:
    return sizes if wide else [layout.size_word(size) for size in sizes]


def _wide(walk: Walk, operands: Sequence[Operand]) -> bool:
    """Whether an index or an offset passes 32 bits."""
    count = 1
    for size in walk.sizes:
        count *= size
    reach = [sum((size - 1) * step for size, step in zip(walk.sizes, steps, strict=True)) for steps in walk.strides]
    return max(count, *reach) > MAX_32_BIT


def _stream(
    device: Device, prepared: Prepared, walk: Walk, operands: list[Operand], written: list[Operand], values: list[int],
    index: int,
) -> None:  # fmt: skip
    everyone = [*operands, *written]
    modes = [_mode_of(walk, steps) for steps in walk.strides]
    count = 1
    for size in walk.sizes:
        count *= size
    strided = any(mode.startswith("strided") for mode in modes)
    vector, wide = 1, True
    if device.vectorises:
        vector = _vector(device, walk, everyone, modes, walk.sizes[0] if strided else 0)
        wide = _wide(walk, everyone)
    variant = Variant("stream", tuple(modes), 0, len(walk.sizes) if strided else 0, vector, wide)
    words = [operand.address for operand in everyone] + values + [count]
    if strided:
        words += _told(walk.sizes, wide)
        for mode, steps in zip(modes, walk.strides, strict=True):
            words += steps if mode.startswith("strided") else ()
    _launch(device, prepared, variant, words, count, index)


def _reduce(
    device: Device, prepared: Prepared, walk: Walk, operands: list[Operand], written: list[Operand],
    reduced: list[bool], results: list[torch.Tensor], values: list[int], index: int,
) -> None:  # fmt: skip
    """One pass writes the results of the full size and sums those that fit together; others take passes of their
    own."""
    steps_of = walk.strides[len(operands) :]
    waiting = [position for position, is_reduced in enumerate(reduced) if is_reduced]
    first = True
    while waiting:
        grouping = layout.group(walk, [steps_of[position] for position in waiting])
        roles = dict(zip(waiting, grouping.roles, strict=True))
        _pass(device, prepared, walk, operands, written, results, roles, grouping, values, index, first)
        waiting = [position for position in waiting if roles[position] is None]
        first = False


def _pass(
    device: Device, prepared: Prepared, walk: Walk, operands: list[Operand], written: list[Operand],
    results: list[torch.Tensor], roles: dict[int, str | None], grouping: layout.Grouping, values: list[int],
    index: int, first: bool,
) -> None:  # fmt: skip
    everyone = [*operands, *written]
    # A GPU's kernel has the element's own index at hand where no dimension but the columns is kept.
    has_index = device.vectorises and not any(grouping.kept)
    own_modes = [_mode_of(walk, steps) if has_index else _mode(steps) for steps in walk.strides]
    modes = own_modes[: len(operands)]
    for position in range(len(written)):
        if roles.get(position) is not None:
            modes.append(f"reduced:{roles[position]}")
        elif first and position not in roles:
            modes.append(own_modes[len(operands) + position])
        else:
            modes.append("absent")
    column = grouping.path == "column"
    kept = [d for d in grouping.kept if d != 0]
    dropped = [d for d in range(len(walk.sizes)) if d not in grouping.kept]
    vector, wide = 1, True
    if device.vectorises:
        vector = _vector(device, walk, everyone, modes, walk.sizes[0])
        wide = _wide(walk, everyone)
    kept_count = _product(walk.sizes[d] for d in kept)
    length = _product(walk.sizes[d] for d in dropped)
    columns = walk.sizes[0] if column else 1
    if column:
        chunks, extent, tiles = device.column_chunks(columns, kept_count, length, vector, index)
        numbers = [columns, kept_count, length, chunks, extent]
    else:
        chunks, extent = device.segment_chunks(length, kept_count, vector, index)
        tiles = 1
        numbers = [length, kept_count, chunks, extent]
    shapes = {
        "all": (chunks, kept_count * columns), "inner": (chunks * kept_count, columns),
        "outer": (chunks * tiles, kept_count), "none": (chunks * tiles * kept_count, 1),
    }  # fmt: skip
    sums = {position: shapes[role] for position, role in roles.items() if role is not None}
    whole = _whole(device, sums, results)
    partials: list[tuple[int, torch.Tensor, int, int]] = []
    addresses = [operand.address for operand in operands]
    for position, (operand, mode) in enumerate(zip(written, modes[len(operands) :], strict=True)):
        if position in sums and results[position].dtype not in whole:
            rows, width = sums[position]
            dtype = torch.float64 if results[position].dtype is torch.float64 else torch.float32
            partial = torch.empty(rows * width, dtype=dtype, device=results[position].device)
            partials.append((position, partial, rows, width))
            addresses.append(partial.data_ptr())
        else:
            addresses.append(0 if mode == "absent" else operand.address)
    device.uses([partial for _, partial, _, _ in partials], more=True)
    variant = Variant(grouping.path, tuple(modes), len(kept), len(dropped), vector, wide)
    words = addresses + values + numbers
    words += _told([walk.sizes[d] for d in (*kept, *dropped)], wide)
    for mode, steps in zip(modes, walk.strides, strict=True):
        if mode.startswith("strided"):
            words += [steps[0]] if column else []
            words += [steps[d] for d in kept] + [steps[d] for d in dropped]
    _launch(device, prepared, variant, words, (kept_count, chunks, tiles, _product(walk.sizes)), index)
    by_dtype: dict[torch.dtype, list[Job]] = {}
    for position, partial, rows, width in partials:
        result = results[position]
        by_dtype.setdefault(result.dtype, []).append((partial.data_ptr(), result.data_ptr(), rows, width))
    for dtype, jobs in by_dtype.items():
        with _tried_once(prepared, (device.target(index), dtype)):
            device.combine(dtype, jobs, index)


def _whole(device: Device, sums: dict[int, tuple[int, int]], results: list[torch.Tensor]) -> set[torch.dtype]:
    """The dtypes whose sums have one row each: the pass writes the results themselves. On a CPU it writes accumulators
    alone, which those of a half type are not."""
    several = {results[position].dtype for position, (rows, _) in sums.items() if rows != 1}
    unfit = set() if device.vectorises else {torch.float16, torch.bfloat16}
    return {results[position].dtype for position in sums} - several - unfit


def _product(sizes: Any) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _launch(device: Device, prepared: Prepared, variant: Variant, words: Sequence[int], tasks: Any, index: int) -> None:
    key = device.target(index), variant
    kernel = prepared.kernels.get(key)
    if kernel is None:
        with _tried_once(prepared, key):
            kernel = prepared.kernels[key] = device.compile(prepared.program, variant)
    device.launch(kernel, prepared.program, variant, words, tasks, index)


@contextmanager
def _tried_once(prepared: Prepared, key: Any) -> Iterator[None]:
    """Around the compilation of a kernel. That a tool is missing concerns every kernel, and is raised as it is."""
    if key in prepared.failed:
        raise NotCompiled(prepared.failed[key], first=False)
    try:
        yield
    except ToolMissingError:
        raise
    except ToolchainError as error:
        prepared.failed[key] = error
        raise NotCompiled(error, first=True) from error


def words_array(words: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(words))(*[word if word < 2**63 else word - 2**64 for word in words])
