"""The launch planner: from the sizes, strides, dtypes and alignment of a call to its launches.

It is written once, in C++ without torch. The C++ runtime includes plan.h; the Python fallback calls the small library
built from planner.cpp, compiled on first use (about a second) and cached by its contents. The caller allocates:

    plan = Plan(program, target, tensors)   plan.result(n): the sizes and strides of a result
    plan.bind(tensors, results, scalars)
    for launch in plan.passes(): ...        scratch memory of launch.scratch_bytes goes to plan.place
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...toolchain import compile_shared_library, load_library

if TYPE_CHECKING:
    import torch

SOURCE = Path(__file__).parent / "planner.cpp"
MAX_DIMENSIONS = 16

PATHS = ("stream", "segment", "column", "row")
MODES = (
    "linear", "scalar", "strided0", "strided1", "stridedn", "reduced:all", "reduced:inner", "reduced:outer",
    "reduced:none", "absent", "row", "shared", "reduced:segments",
)  # fmt: skip
"""In the order of the enumerations of loops.h and plan.h."""


class Tuning(NamedTuple):
    """tuning.h's Tuning."""

    cpu_grain: int
    cpu_tasks: int
    cpu_tile: int
    stream_threads: int
    segment_threads: int
    column_threads: int
    combine_threads: int
    resident: int
    tile_packs: int
    narrowest: int
    least_packs: int
    most_packs: int
    few_items: int
    very_few: int
    few: int
    some: int
    few_in_columns: int
    row_threads: int
    row_lane_packs: int
    row_bytes: int
    row_most_bytes: int
    row_most_warps: int
    row_few_threads: int
    row_registers: int
    row_ahead: int


class Target(NamedTuple):
    """Where a kernel runs: a CPU, or a GPU with its number of multiprocessors and the most blocks of a cluster."""

    is_gpu: bool
    multiprocessors: int
    tuning: Tuning
    cluster: int = 1

    def row(self) -> Any:
        """tuning.h's Target."""
        return row([self.is_gpu, self.multiprocessors, self.cluster, 0, *self.tuning])


@dataclass(frozen=True)
class LayoutClass:
    """The layouts that one compiled kernel handles: what its source depends on apart from the program.

    `path`: 'stream' has no sums. In 'segment' a block keeps one combination of the kept dimensions and runs along the
    reduced ones, the innermost among them. In 'column' neighbouring threads keep neighbouring columns and run down the
    reduced dimensions. In 'row' each row, over the inner dimensions, is reduced and computed in several passes.
    `modes`, one per operand, inputs first: 'linear' (by the element's own index), 'scalar', 'strided0' (repeated along
    the innermost dimension), 'strided1' (contiguous along it), 'stridedn'; 'reduced:' and what a sum keeps of the kept
    dimensions; 'absent' for a result of another pass; 'row' for a result with one value
    for each row; 'shared' for an input with the same contiguous elements for every row.
    `outer` and `inner` count dimensions: kept (without the columns) and reduced; for 'stream' all are inner.
    On a GPU, each thread holds `held` packs of a row in registers, or every pass reads the row again (0). The blocks of
    a `cluster` share a row, or the lanes of a warp if that is 0. A block has up to `warps` warps. Where teams have sums
    over rows, `resident` blocks run on a multiprocessor at once, and each team may load its next row `ahead`.
    """

    path: str
    modes: tuple[str, ...]
    outer: int
    inner: int
    vector: int  # elements of a pack, which a thread moves at once
    wide: bool  # 64-bit indices
    held: int = 0
    cluster: int = 0
    warps: int = 0
    resident: int = 0
    ahead: bool = False

    def encoded(self, index: int = 0) -> bytes:
        """plan.h's LayoutClass, for a GPU of this index."""
        head = (PATHS.index(self.path), self.outer, self.inner, self.vector, self.wide, index)
        rows = (self.held, self.cluster, self.warps, self.resident, self.ahead)
        return bytes([*head, *rows, *(MODES.index(mode) for mode in self.modes)])

    @staticmethod
    @functools.cache
    def decoded(encoded: bytes) -> LayoutClass:
        path, outer, inner, vector, wide, _, held, cluster, warps, resident, ahead, *modes = encoded
        named = tuple(MODES[mode] for mode in modes)
        rows = (held, cluster, warps, resident, bool(ahead))
        return LayoutClass(PATHS[path], named, outer, inner, vector, bool(wide), *rows)


class Combine(ctypes.Structure):
    """A launch that adds up partial sums: plan.h's Combine."""

    dtype: int
    jobs: int
    tasks: int
    blocks: int
    parameters: int
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("dtype", "jobs", "tasks", "blocks")),
        ("parameters", ctypes.c_void_p),
    )


class Pass(ctypes.Structure):
    """A launch: plan.h's Pass."""

    parameters: int
    parameter_count: int
    tasks: int
    grain: int
    blocks: int
    threads: int
    scratch_bytes: int
    _fields_ = (
        ("_layout", ctypes.c_void_p),
        ("_layout_size", ctypes.c_int64),
        ("parameters", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("parameter_count", "tasks", "grain", "blocks", "threads")),
        ("scratch_bytes", ctypes.c_int64),
        ("_combines", ctypes.POINTER(Combine)),
        ("_combine_count", ctypes.c_int64),
    )

    @property
    def layout(self) -> LayoutClass:
        return LayoutClass.decoded(ctypes.string_at(self._layout, self._layout_size))

    @property
    def combines(self) -> list[Combine]:
        return [self._combines[i] for i in range(self._combine_count)]


def row(numbers: Sequence[int]) -> Any:
    """Numbers as an array for C++."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def counted(entries: Iterable[Sequence[int]]) -> list[int]:
    """A list for a row of numbers: the number of entries, then the numbers of each."""
    listed = list(entries)
    return [len(listed), *(number for entry in listed for number in entry)]


def build() -> Path:
    return compile_shared_library(
        "opsmith_planner", [SOURCE], abi="plain", extra_cflags=("-O2",), label="opsmith's launch planner"
    )


@functools.cache
def library() -> Any:
    """The planner's library, compiled if it is not cached. Raises a ToolchainError if it cannot be: a ToolMissingError
    without a C++ compiler."""
    functions = load_library(build())
    handle, number, size, numbers = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p
    for name, result, *arguments in (
        ("program", handle, numbers, size),
        ("free_program", None, handle),
        ("plan", handle, handle, numbers, numbers, size, size),
        ("free_plan", None, handle),
        ("plan_count", number, handle),
        ("plan_result", number, handle, number, numbers),
        ("plan_refused", ctypes.c_bool, handle),
        ("plan_bind", ctypes.c_bool, handle, numbers, size, size, numbers, numbers),
        ("plan_next", ctypes.POINTER(Pass), handle),
        ("plan_place", None, handle, number),
        ("plan_stream_blocks", number, handle, numbers),
    ):
        function = getattr(functions, f"opsmith_{name}")
        function.restype, function.argtypes = result, arguments
    return functions


class Unplanned(Exception):
    """One kernel cannot compute this call: no common shape, or too many tensors or dimensions."""


class Program:
    """A generated program as program.h's row of numbers. Raises Unplanned if it has too many tensors for one kernel."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    @functools.cached_property
    def handle(self) -> int:
        found = library().opsmith_program(row(self.numbers), len(self.numbers))
        if not found:
            raise Unplanned
        return int(found)

    def __del__(self) -> None:
        if "handle" in self.__dict__:
            library().opsmith_free_program(self.handle)


class Plan:
    """The plan of one call. `target`: the row of a Target. `tensors`: one per slot, then out= tensors."""

    def __init__(self, program: Program, target: Any, tensors: Sequence[torch.Tensor | None]) -> None:
        self._library = library()
        self._referred_to = program, target  # by C++
        numbers = _strided(tensors)
        self._handle = self._library.opsmith_plan(program.handle, target, row(numbers), len(numbers), len(tensors))
        if not self._handle:
            raise Unplanned

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.opsmith_free_plan(self._handle)

    @property
    def count(self) -> int:
        """The elements of the full shape."""
        return int(self._library.opsmith_plan_count(self._handle))

    def result(self, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sizes and strides of a result."""
        written = (ctypes.c_int64 * (2 * MAX_DIMENSIONS))()
        count = self._library.opsmith_plan_result(self._handle, number, written)
        return tuple(written[:count]), tuple(written[count : 2 * count])

    def bind(self, reads: Sequence[torch.Tensor], results: Sequence[torch.Tensor], scalars: Sequence[int]) -> None:
        numbers = _strided(results)
        addresses = row([tensor.data_ptr() for tensor in (*reads, *results)])
        bound = self._library.opsmith_plan_bind(
            self._handle, row(numbers), len(numbers), len(results), addresses, row(scalars)
        )
        if not bound:
            raise Unplanned

    @property
    def refused(self) -> bool:
        """Whether a kernel has found an argument that only the reference can refuse."""
        return bool(self._library.opsmith_plan_refused(self._handle))

    def passes(self) -> Iterator[Pass]:
        """The launches in order. Each is valid until the next one is planned."""
        while found := self._library.opsmith_plan_next(self._handle):
            yield found.contents

    def place(self, scratch: int) -> None:
        """The address of the scratch memory of the current pass."""
        self._library.opsmith_plan_place(self._handle, scratch)

    def stream_blocks(self, tiles: Sequence[int]) -> int:
        """The blocks of a pass without sums, from the elements of a block (generate/tuning.py's tiles)."""
        return int(self._library.opsmith_plan_stream_blocks(self._handle, row(tiles)))


def _strided(tensors: Sequence[torch.Tensor | None]) -> list[int]:
    numbers: list[int] = []
    for tensor in tensors:
        if tensor is None:
            numbers.append(-1)
        else:
            numbers += [tensor.dim(), *tensor.shape, *tensor.stride()]
    return numbers
