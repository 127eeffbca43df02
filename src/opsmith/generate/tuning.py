"""How generated kernels use a processor: packs, threads, registers.

Every constant to measure and change for a new GPU is here. The launch planner gets those that decide how a launch is
divided (`planner_tuning`); the functions here decide what the source of a kernel depends on.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..launch.planner import LayoutClass, Tuning
from .expression import Input, Node, Program, postorder
from .text import fast_math

# --- CPU ------------------------------------------------------------------------------------------------------------

CPU_GRAIN = 32768
"""Elements worth another thread: at::internal::GRAIN_SIZE."""
CPU_TASKS = 256
"""The most tasks of a reduction, in addition to one per kept combination. Fixed, so that sums do not depend on the
number of threads."""
CPU_TILE = 1024
"""Columns of one task: cpu.h's TILE."""

# --- GPU ------------------------------------------------------------------------------------------------------------

THREADS = {"stream": 128, "segment": 128, "column": 256}
"""Threads per block, by path. 128 gained mish and gelu in bfloat16 their last 5 %; 64 columns need 256 (92 against
87 %)."""
COMBINE_THREADS = 256
RESIDENT = 1024
"""Threads of a reduction that are on a multiprocessor at once. No more are started: each does several iterations. 768
and 1536 were 2 to 12 % slower."""
UNROLL = {1: 4, 2: 2, 4: 1, 8: 2}
"""Packs of each tensor that a thread of the stream path has in flight, by the elements of a pack."""
REDUCTION_UNROLL = {1: 4, 2: 1, 4: 1, 8: 1}
"""The same for the other paths."""
BYTES_IN_FLIGHT = 64
"""The most bytes of all these packs; otherwise there is one pack of each tensor. Three tensors of bfloat16 with two
packs each took 3 % longer at 2^22 elements than with one; two tensors with one pack each took 6 % longer than with
two."""
SMALL = (128, 2048, 8192)
"""Elements per multiprocessor up to which a launch has very few, few, or some. Then each pack has its own thread, or
each pair of elements if there are very few, or few of an EXPENSIVE program. A small launch spends its time on fetching
each instruction once and on starting blocks."""
EXPENSIVE = 100
"""Instructions per pack."""
PACKS_IN_FLIGHT, FEW_BLOCKS = 4, 264
"""Packs in flight for a reduction of at most FEW_BLOCKS blocks, which cannot hide each other's latency (0.5 us per
iteration)."""
STREAM_RESIDENT = ((28, 40, 2048), (40, 200, 1536))
"""For half types, (registers, instructions, threads): if packs and results take at most this number of registers per
thread and an element this number of instructions, this number of threads of the stream path must fit on a
multiprocessor."""
REGISTERS = 60
"""Registers for a thread's packs, results and sums, of the 64 that each of RESIDENT threads has."""
INSTRUCTIONS = 1500
"""Instructions for all packs of a thread, roughly; a more expensive program has fewer in flight and compiles faster."""
TILE_PACKS, NARROWEST = 32, 2
"""The most packs side by side in a block of the column path (512 bytes of a row), and the fewest."""
LEAST_PACKS = 4
"""A thread of a reduction has at least this many packs, to be worth its block."""
MOST_PACKS = 8
"""And at most this many if that avoids combining, which takes as long as a small launch."""
FEW_ITEMS = 1024
"""Up to this number of sums, or of their chunks, each gets one block."""


# Rows. Each thread of a team holds its packs of the row in registers.
ROW_THREADS, ROW_LANE_PACKS = 128, 4
"""Threads of a block whose warps, or parts of warps, have a row each; the most packs that each of their lanes holds."""
ROW_BYTES, ROW_MOST_BYTES = 128, 192
"""Bytes of a row in the registers of a thread: rather more threads than more than this, and at most."""
ROW_MOST_WARPS = 16
"""Warps of a block that has a row; longer rows have a cluster of blocks, or are read again by every pass."""
ROW_FEW_THREADS = 1024
"""With fewer packs per multiprocessor than this, rows do not fill the GPU: each thread has as few as possible."""
ROW_REGISTERS, ROW_AHEAD = 32, True
"""Registers of a thread besides the row's; whether a team with sums over rows loads its next row while it computes one,
if registers allow."""


def planner_tuning() -> Tuning:
    """The constants for the launch planner."""
    return Tuning(
        CPU_GRAIN, CPU_TASKS, CPU_TILE, THREADS["stream"], THREADS["segment"], THREADS["column"], COMBINE_THREADS,
        RESIDENT, TILE_PACKS, NARROWEST, LEAST_PACKS, MOST_PACKS, FEW_ITEMS, *SMALL, SMALL[0],
        ROW_THREADS, ROW_LANE_PACKS, ROW_BYTES, ROW_MOST_BYTES, ROW_MOST_WARPS, ROW_FEW_THREADS,
        ROW_REGISTERS, ROW_AHEAD,
    )  # fmt: skip


# Instructions of a function in float, roughly; others take one or two.
_COSTS = {
    "div": 10, "reciprocal": 10, "sqrt": 10, "rsqrt": 5, "exp": 10, "exp2": 8, "expm1": 20, "log": 20, "log2": 20,
    "log10": 20, "log1p": 25, "sin": 40, "cos": 40, "tan": 60, "asin": 25, "acos": 25, "atan": 25, "atan2": 40,
    "sinh": 30, "cosh": 20, "tanh": 20, "asinh": 40, "acosh": 40, "atanh": 40, "erf": 30, "erfc": 40, "erfinv": 50,
    "lgamma": 150, "pow": 120, "pow_general": 120, "integer_pow": 60, "fmod": 60, "remainder": 60, "floor_divide": 80,
    "hypot": 20, "sigmoid": 25, "sinc": 60, "logaddexp": 45, "logaddexp2": 45, "xlogy": 25, "softplus": 40,
    "tanh_softplus": 30, "normal_cdf": 60, "normal_pdf": 20,
}  # fmt: skip


def cost_of(node: Node) -> int:
    """Instructions of a node itself, roughly."""
    return 0 if node.function is None else max(1, _COSTS.get(node.function.name, 1))


def unroll(program: Program, layout: LayoutClass) -> int:
    """Packs of each tensor that a thread has in flight."""
    packs = (UNROLL if layout.path == "stream" else REDUCTION_UNROLL)[layout.vector]
    while packs > 1 and packs * layout.vector * sum(_loaded(program, layout)) > BYTES_IN_FLIGHT:
        packs //= 2
    return _fitting(program, layout, packs)


def packs_in_flight(program: Program, layout: LayoutClass) -> int:
    """The same for a reduction with few blocks. Strided elements and 64-bit offsets take too many registers."""
    least = unroll(program, layout)
    if layout.wide or "stridedn" in layout.modes:
        return least
    if layout.path != "column":
        return max(least, _fitting(program, layout, PACKS_IN_FLIGHT))
    offsets = sum(mode.startswith("strided") for mode in layout.modes) + ("linear" in layout.modes)
    return max(least, _fitting(program, layout, PACKS_IN_FLIGHT, offsets))


def _fitting(program: Program, layout: LayoutClass, packs: int, offsets: int = 0) -> int:
    cost = layout.vector * _cost(program, layout)
    room = REGISTERS * RESIDENT // min(RESIDENT, resident(program, layout, packs))
    while packs > 1 and (packs * cost > INSTRUCTIONS or _registers(program, layout, packs) + packs * offsets > room):
        packs //= 2
    return packs


def resident(program: Program, layout: LayoutClass, packs: int) -> int:
    """Threads for which a kernel's registers must leave room on a multiprocessor."""
    wide = any(node.dtype is torch.float64 for node in program.nodes() if node.args)
    if wide or any(read.dtype is torch.float64 for read in program.reads):
        return RESIDENT // 2  # numbers take two registers each
    if layout.path == "stream" and layout.vector == 8:
        used, cost = _registers(program, layout, packs), _cost(program, layout)
        return next(
            (fit for registers, instructions, fit in STREAM_RESIDENT if used <= registers and cost <= instructions),
            RESIDENT,
        )
    return RESIDENT


def least_blocks(program: Program, layout: LayoutClass) -> int:
    """Blocks that fit on a multiprocessor at least."""
    return resident(program, layout, unroll(program, layout)) // THREADS[layout.path]


def _registers(program: Program, layout: LayoutClass, packs: int) -> int:
    """Registers, roughly, of what a thread loads, of its results, and of its sums of columns."""
    used = present(program, layout)
    loaded = _loaded(program, layout)
    results = sum(2 if result.dtype is torch.float64 else 1 for result in used.results)
    column_sums = sum(mode in ("reduced:all", "reduced:inner") for mode in layout.modes)
    sums = column_sums if layout.path == "column" else 0
    return layout.vector * (packs * sum(loaded) // 4 + results + sums)


def _loaded(program: Program, layout: LayoutClass) -> list[int]:
    """The bytes of an element of each tensor that a thread loads in packs."""
    modes = dict(zip(program.reads, layout.modes, strict=False))
    used = present(program, layout)
    return [read.dtype.itemsize for read in used.reads if modes[read] not in ("scalar", "strided0")]


def tiles(program: Program, layout: LayoutClass) -> tuple[int, int, int, int]:
    """Elements that a block of the stream path computes if there are very few, few, some or many in total."""
    packs = THREADS["stream"] * layout.vector
    pairs = THREADS["stream"] * min(2, layout.vector)
    few = pairs if layout.vector * _cost(program, layout) > EXPENSIVE else packs
    return pairs, few, packs, packs * unroll(program, layout)


def _cost(program: Program, layout: LayoutClass) -> int:
    halves = 2 if fast_math(program) else 1
    cost = 0
    for node in postorder(result.expression for result in present(program, layout).results):
        if node.function is not None:
            own = max(1, _COSTS.get(node.function.name, 1) // halves)
            cost += own * 3 if any(arg.dtype is torch.float64 for arg in node.args) else own
    return cost


def present(program: Program, layout: LayoutClass) -> Program:
    """The program without the results of other passes and the inputs that only they read."""
    modes = layout.modes[len(program.reads) :]
    results = tuple(result for result, mode in zip(program.results, modes, strict=True) if mode != "absent")
    used = {node.slot for node in postorder(result.expression for result in results) if isinstance(node, Input)}
    return replace(program, reads=tuple(read for read in program.reads if read.slot in used), results=results)
