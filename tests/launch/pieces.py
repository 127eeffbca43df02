"""The parts of the launch planner one by one: pieces.cpp, compiled for the tests."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opsmith.generate.tuning import planner_tuning
from opsmith.launch import planner
from opsmith.launch.planner import MODES, Target, row
from opsmith.toolchain import compile_shared_library, load_library

TUNING = planner_tuning()
CPU = Target(False, 0, TUNING)


def gpu(multiprocessors: int, small: tuple[int, int, int] | None = None) -> Target:
    """A GPU; `small`: its own limits for launches with few elements."""
    if small is None:
        return Target(True, multiprocessors, TUNING)
    return Target(True, multiprocessors, TUNING._replace(very_few=small[0], few=small[1], some=small[2]))


@functools.cache
def library() -> Any:
    path = compile_shared_library(
        "planner_pieces",
        [Path(__file__).with_suffix(".cpp")],
        abi="plain",
        extra_cflags=("-O1",),
        include_dirs=[planner.SOURCE.parent],
    )
    functions = load_library(path)
    number = ctypes.c_int64
    functions.with_multiplier_of.restype, functions.with_multiplier_of.argtypes = ctypes.c_uint64, [number]
    functions.pack_width_of.argtypes = [number]
    functions.column_block_of.restype, functions.column_block_of.argtypes = number, [number] * 4
    functions.chunks_of.argtypes = [ctypes.c_void_p, ctypes.c_bool, *[number] * 4, ctypes.c_void_p]
    functions.stream_blocks_of.restype = number
    functions.stream_blocks_of.argtypes = [ctypes.c_void_p, number, ctypes.c_void_p]
    functions.group_of.restype = number
    functions.row_team_of.argtypes = [ctypes.c_void_p, *[number] * 3, ctypes.c_bool, ctypes.c_void_p]
    return functions


def with_multiplier(size: int) -> int:
    return int(library().with_multiplier_of(size))


def pack_width(itemsizes: Sequence[int]) -> int:
    return int(library().pack_width_of(min(itemsizes)))


def column_block(width: int, height: int, vector: int, chunks: int) -> int:
    return int(library().column_block_of(width, height, vector, chunks))


class Chunks(NamedTuple):
    count: int
    extent: int
    tiles: int
    blocks: int  # of a GPU's grid


def chunks(target: Target, by_column: bool, columns: int, kept: int, length: int, vector: int = 1) -> Chunks:
    written = row([0] * 4)
    library().chunks_of(target.row(), by_column, columns, kept, length, vector, written)
    return Chunks(*written)


def segment_chunks(target: Target, length: int, kept: int, vector: int = 1) -> Chunks:
    return chunks(target, False, 1, kept, length, vector)


def column_chunks(target: Target, columns: int, kept: int, rows: int, vector: int = 1) -> Chunks:
    return chunks(target, True, columns, kept, rows, vector)


def stream_blocks(target: Target, count: int, tiles: Sequence[int]) -> int:
    return int(library().stream_blocks_of(target.row(), count, row(tiles)))


class RowTeam(NamedTuple):
    held: int
    threads: int  # of a block
    cluster: int  # blocks that share a row; 0: lanes of a warp do
    lanes: int
    held_before: int  # the number of held packs before this one

    @property
    def size(self) -> int:
        return self.cluster * self.threads or self.lanes


def row_team(packs: int, rows: int, bytes_of_pack: int, sums: bool, cluster: int = 16) -> RowTeam:
    written = row([0] * 5)
    library().row_team_of(gpu(132)._replace(cluster=cluster).row(), packs, rows, bytes_of_pack, sums, written)
    return RowTeam(*written)


class Loops(NamedTuple):
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    modes: tuple[str, ...]


def loops(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Loops:
    """The merged loops over tensors expanded to `shape`, the last dimension innermost."""
    written = row([0] * 4096)
    flat = [stride for own in strides for stride in own]
    library().loops_of(row(shape), len(shape), row(flat), len(strides), written)
    left = iter(written)
    count = next(left)
    sizes = tuple(next(left) for _ in range(count))
    merged = tuple(tuple(next(left) for _ in range(count)) for _ in strides)
    return Loops(sizes, merged, tuple(MODES[next(left)] for _ in strides))


def strided_mode(strides: Sequence[int]) -> str:
    """How an operand is addressed without the element's own index."""
    if not any(strides):
        return "scalar"
    return f"strided{strides[0] if strides[0] in (0, 1) else 'n'}"


class Grouping(NamedTuple):
    kept: tuple[int, ...]
    roles: tuple[str | None, ...]

    @property
    def path(self) -> str:
        return "column" if 0 in self.kept else "segment"


def group(sums: Sequence[Sequence[int]]) -> Grouping:
    """Which sums share the first pass, from their strides over the loops."""
    dimensions = len(sums[0])
    roles = row([0] * len(sums))
    bits = library().group_of(dimensions, row([stride for own in sums for stride in own]), len(sums), roles)
    modes = [MODES[role] for role in roles]
    kept = tuple(d for d in range(dimensions) if bits >> d & 1)
    return Grouping(kept, tuple(None if mode == "absent" else mode.removeprefix("reduced:") for mode in modes))
