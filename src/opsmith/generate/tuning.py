"""How generated CUDA kernels use the GPU: packs, threads, grids.

Everything to measure and turn on a new GPU is here. native/tuning.h is the launcher's part of this file in C++.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from .exactness import fast_math
from .expression import Input, Program, walk
from .layout import Variant

THREADS = {"stream": 128, "segment": 128, "column": 256}
"""Of a block, by path. 128 gave mish and gelu in bfloat16 their last 5 %; columns of 64 want 256 (92 against 87 %)."""
COMBINE_THREADS = 256
RESIDENT = 1024
"""Threads of a reduction that live on a multiprocessor at once, and all that are started: they come back for more. 768
and 1536 were 2 to 12 % slower."""
UNROLL = {1: 4, 2: 2, 4: 1, 8: 2}
"""Packs of each tensor that a thread of the stream path has in flight, by the elements of a pack."""
BYTES_IN_FLIGHT = 64
"""What all these come to at most, or there is one pack of each: three tensors of bfloat16 with two packs each took 3 %
longer at 2^22 elements than with one, but two tensors with one pack each 6 %."""
SMALL = (128, 2048, 8192)
"""Elements for each multiprocessor up to which there are very few, few, or some: then every pack has a thread of its
own, and every pair of elements where there are very few, or few of a program whose packs take more instructions than
DEAR. A small launch takes time for the instructions that it fetches, each once, and for the blocks that it starts."""
DEAR = 100
REDUCTION_UNROLL = {1: 4, 2: 1, 4: 1, 8: 1}
"""The same of the other paths."""
AHEAD, FEW_BLOCKS = 4, 264
"""And where so few blocks are launched, which cannot hide each other's waiting: a turn takes 0.5 us."""
STREAM_RESIDENT = ((28, 40, 2048), (40, 200, 1536))
"""Of half types: where packs and results take at most so many registers of a thread, and an element so many
instructions, so many threads of the stream path are to fit on a multiprocessor."""
REGISTERS = 60
"""What a thread's packs, results and sums may take of its registers, where RESIDENT threads leave it 64."""
INSTRUCTIONS = 1500
"""What a thread's packs may come to, roughly; a dearer program has fewer of them in flight, and compiles sooner."""
TILE_PACKS, NARROWEST = 32, 2
"""The most packs side by side in a block of the column path: 512 bytes of a row; and the fewest. A block has a thread
for each column of the widest tile."""
LEAST_PACKS = 4
"""A thread of a reduction has at least so many packs, or is not worth its block."""
MOST_PACKS = 8
"""And at most so many where that saves combining, which takes as long as a small launch."""
FEW_ITEMS = 1024
"""So few sums, or parts of them, are worth a block each."""

# Instructions of a function in float, roughly; what is not here takes one or two.
_COSTS = {
    "div": 10, "reciprocal": 10, "sqrt": 10, "rsqrt": 5, "exp": 10, "exp2": 8, "expm1": 20, "log": 20, "log2": 20,
    "log10": 20, "log1p": 25, "sin": 40, "cos": 40, "tan": 60, "asin": 25, "acos": 25, "atan": 25, "atan2": 40,
    "sinh": 30, "cosh": 20, "tanh": 20, "asinh": 40, "acosh": 40, "atanh": 40, "erf": 30, "erfc": 40, "erfinv": 50,
    "lgamma": 150, "pow": 120, "pow_general": 120, "integer_pow": 60, "fmod": 60, "remainder": 60, "floor_divide": 80,
    "hypot": 20, "sigmoid": 25, "sinc": 60, "logaddexp": 45, "logaddexp2": 45, "xlogy": 25, "softplus": 40,
    "tanh_softplus": 30, "normal_cdf": 60, "normal_pdf": 20,
}  # fmt: skip


def vector_width(itemsizes: Iterable[int]) -> int:
    """Elements of a pack: 16 bytes of the narrowest full-size operand, at most 8. Where a pointer or a stride is not
    aligned to that, or the innermost size no multiple of it, the caller takes 1."""
    return max(1, min(8, 16 // min(itemsizes)))


def unroll(program: Program, variant: Variant) -> int:
    """Packs of each tensor that a thread has in flight."""
    packs = (UNROLL if variant.path == "stream" else REDUCTION_UNROLL)[variant.vector]
    while packs > 1 and packs * variant.vector * sum(_loaded(program, variant)) > BYTES_IN_FLIGHT:
        packs //= 2
    return _fitting(program, variant, packs)


def ahead(program: Program, variant: Variant) -> int:
    """The same, of a reduction with few blocks. Elements that lie apart and 64-bit offsets take too many registers."""
    least = unroll(program, variant)
    if variant.wide or "stridedn" in variant.modes:
        return least
    if variant.path != "column":
        return max(least, _fitting(program, variant, AHEAD))
    offsets = sum(mode.startswith("strided") for mode in variant.modes) + ("linear" in variant.modes)
    return max(least, _fitting(program, variant, AHEAD, offsets))


def _fitting(program: Program, variant: Variant, packs: int, offsets: int = 0) -> int:
    cost = variant.vector * _cost(program, variant)
    room = REGISTERS * RESIDENT // min(RESIDENT, resident(program, variant, packs))
    while packs > 1 and (packs * cost > INSTRUCTIONS or _registers(program, variant, packs) + packs * offsets > room):
        packs //= 2
    return packs


def resident(program: Program, variant: Variant, packs: int) -> int:
    """Threads on a multiprocessor that a kernel's registers must leave room for."""
    wide = any(node.dtype is torch.float64 for node in program.nodes() if node.args)
    if wide or any(read.dtype is torch.float64 for read in program.reads):
        return RESIDENT // 2  # numbers take two registers each
    if variant.path == "stream" and variant.vector == 8:
        used, cost = _registers(program, variant, packs), _cost(program, variant)
        return next((fit for most, dearest, fit in STREAM_RESIDENT if used <= most and cost <= dearest), RESIDENT)
    return RESIDENT


def least_blocks(program: Program, variant: Variant) -> int:
    """Blocks that fit on a multiprocessor at least."""
    return resident(program, variant, unroll(program, variant)) // THREADS[variant.path]


def _registers(program: Program, variant: Variant, packs: int) -> int:
    """Registers, roughly, of what a thread loads, of its results, and of its sums of columns."""
    used = present(program, variant)
    loaded = _loaded(program, variant)
    results = sum(2 if result.dtype is torch.float64 else 1 for result in used.results)
    column_sums = sum(mode in ("reduced:all", "reduced:inner") for mode in variant.modes)
    sums = column_sums if variant.path == "column" else 0
    return variant.vector * (packs * sum(loaded) // 4 + results + sums)


def _loaded(program: Program, variant: Variant) -> list[int]:
    """The bytes of an element of each tensor that a thread loads by the pack."""
    modes = dict(zip(program.reads, variant.modes, strict=False))
    used = present(program, variant)
    return [read.dtype.itemsize for read in used.reads if modes[read] not in ("scalar", "strided0")]


def tiles(program: Program, variant: Variant) -> tuple[int, int, int, int]:
    """Elements that a block of the stream path computes where there are very few, few, some or many of them: the
    launcher keeps this with the kernel."""
    packs = THREADS["stream"] * variant.vector
    pairs = THREADS["stream"] * min(2, variant.vector)
    few = pairs if variant.vector * _cost(program, variant) > DEAR else packs
    return pairs, few, packs, packs * unroll(program, variant)


def segment_chunks(length: int, kept_count: int, vector: int, multiprocessors: int) -> tuple[int, int]:
    """(chunks, group) of the segment path: into how many chunks each sum is cut, and the threads that share one."""
    least = THREADS["segment"] * LEAST_PACKS * vector
    chunks = max(1, min(_chunks("segment", kept_count, multiprocessors), _divide_up(length, least)))
    return chunks, segment_group(_divide_up(length, chunks * vector), kept_count * chunks)


def segment_group(packs: int, items: int) -> int:
    """Threads that share one of so many chunks of so many packs."""
    if packs > 256 or (packs > 32 and items <= FEW_ITEMS):
        return THREADS["segment"]
    group = 1
    while group < 32 and group < packs:
        group *= 2
    return group


def column_chunks(columns: int, kept_count: int, rows: int, vector: int, multiprocessors: int) -> tuple[int, int, int]:
    """(chunks, block, tiles) of the column path: a block is a chunk of the rows of a tile, its threads stand as the
    word `block` says. Of very few elements (SMALL) each pair has a thread, and a column is one block's."""
    if kept_count == 1 and rows <= THREADS["column"] and columns * rows <= SMALL[0] * multiprocessors:
        pair = min(2, vector)
        tiles, width, _ = column_tiles(columns, pair, THREADS["column"] // max(pair, rows))
        return 1, column_block(width, rows, pair, pairs=True), tiles
    tile = column_tile(columns, kept_count, rows, vector, multiprocessors)
    tiles, width, height = column_tiles(columns, vector, tile)
    chunks = 1
    if tile == TILE_PACKS:
        most = _chunks("column", tiles * kept_count, multiprocessors)
        chunks = max(1, min(most, _divide_up(rows, height * LEAST_PACKS)))
    return chunks, column_block(width, height, vector, chunks), tiles


def column_block(width: int, height: int, vector: int, chunks: int = 1, *, pairs: bool = False) -> int:
    """How the threads of a block stand, for the kernel not to work it out: cuda.h's ColumnBlock. Threads are fewer than
    2^15 / width, so that the rounding up of 1 / width does not tell."""
    inverse = _divide_up(1 << 15, width)
    share = min(5, max(1, height // max(4, vector)).bit_length() - 1)
    return width | height << 16 | inverse << 32 | share << 48 | pairs << 56 | (chunks == 1) << 57


def column_tile(columns: int, kept_count: int, rows: int, vector: int, multiprocessors: int) -> int:
    """Few rows are not cut into chunks but the columns into narrower tiles: then there is nothing to combine."""
    tile = max(NARROWEST, _divide_up(THREADS["column"], max(1, rows)))
    _, _, height = column_tiles(columns, vector, TILE_PACKS)
    tiles, _, high = column_tiles(columns, vector, tile)
    few = tiles * kept_count <= 2 * multiprocessors and rows <= MOST_PACKS * high
    return tile if few and tile < TILE_PACKS and rows > height * LEAST_PACKS else TILE_PACKS


def column_tiles(columns: int, vector: int, tile: int) -> tuple[int, int, int]:
    """(tiles, width, height) of the column path: blocks across the columns; a block's threads, across and down."""
    packs = columns // vector
    tiles = _divide_up(packs, tile)
    width = _divide_up(packs, tiles)
    return tiles, width, THREADS["column"] // width


def _chunks(path: str, independent: int, multiprocessors: int) -> int:
    """Into how many chunks to cut each of so many independent sums. As many as fit on the GPU at once, for a block that
    stays costs least; where they would leave more than a sixteenth of it idle, four times as many, that even out."""
    blocks = RESIDENT // THREADS[path] * multiprocessors
    at_once = blocks // independent
    return at_once if 16 * at_once * independent >= 15 * blocks else _divide_up(4 * blocks, independent)


Dim3 = tuple[int, int, int]


def geometry(
    program: Program,
    variant: Variant,
    words: Sequence[int],
    multiprocessors: int,
    small: tuple[int, int, int] | None = None,
) -> tuple[Dim3, Dim3]:
    """(grid, block) of a launch with these words."""
    numbers = words[len(program.reads) + len(program.results) + len(program.scalars) :]
    if variant.path == "stream":
        larger = sum(numbers[0] > most * multiprocessors for most in small or SMALL)
        blocks = _divide_up(numbers[0], tiles(program, variant)[larger])
    elif variant.path == "segment":
        _, kept_count, chunks, group = numbers[:4]
        blocks = _divide_up(kept_count * chunks, THREADS["segment"] // group)
    else:
        columns, kept_count, _, chunks, block = numbers[:5]
        pack = min(2, variant.vector) if block >> 56 & 1 else variant.vector
        blocks = _divide_up(columns // pack, block & 0xFFFF) * kept_count * chunks
    return (max(1, blocks), 1, 1), (THREADS[variant.path], 1, 1)


def combine_geometry(rows: int, columns: int, jobs: int = 1) -> tuple[Dim3, Dim3]:
    """(grid, block) of a launch that combines `jobs` results of at most so many columns."""
    return (max(1, _divide_up(columns, 32)), jobs, 1), (COMBINE_THREADS, 1, 1)


def _divide_up(a: int, b: int) -> int:
    return (a + b - 1) // b


def _cost(program: Program, variant: Variant) -> int:
    halves = 2 if fast_math(program) else 1
    cost = 0
    for node in walk(result.expression for result in present(program, variant).results):
        if node.function is not None:
            own = max(1, _COSTS.get(node.function.name, 1) // halves)
            cost += own * 3 if any(arg.dtype is torch.float64 for arg in node.args) else own
    return cost


def present(program: Program, variant: Variant) -> Program:
    """The program without the results of other passes and without what only they read."""
    modes = variant.modes[len(program.reads) :]
    results = tuple(result for result, mode in zip(program.results, modes, strict=True) if mode != "absent")
    used = {node.slot for node in walk(result.expression for result in results) if isinstance(node, Input)}
    return replace(program, reads=tuple(read for read in program.reads if read.slot in used), results=results)
